// SPDX-License-Identifier: MIT
// Which curves a training has beside its loss: what pairs of answers say of the reward, further sets that are evaluated, and questions.

const SET = 'valid_loss/';

/** [{title, curves: [{name, of, key}]}]: `of` names the rows, steps or valid, that have `key`. Only those that there are. */
export function extraCurves(rows) {
    const says = ({ of, key }) => rows[of].some(row => Number.isFinite(row[key]));
    const both = key => [{ name: 'each step', of: 'steps', key }, { name: 'validation', of: 'valid', key: `valid_${key}` }];
    const sets = [...new Set(rows.valid.flatMap(row => Object.keys(row).filter(key => key.startsWith(SET))))];
    return [
        { title: 'Reward margin', curves: both('rewards/margins') },
        { title: 'Preferred answers', curves: both('rewards/accuracies') },
        { title: 'Further sets', curves: sets.map(key => ({ name: key.slice(SET.length), of: 'valid', key })) },
        { title: 'Exact matches', curves: [{ name: 'of all answers', of: 'valid', key: 'exact_match' }] },
    ].map(chart => ({ ...chart, curves: chart.curves.filter(says) })).filter(chart => chart.curves.length);
}

/** The curves of {name, of, key} as columns beside the steps of any of them. */
export function columnsOf(curves, rowsOf) {
    const steps = [...new Set(curves.flatMap(curve => rowsOf(curve).map(row => row.step)))].sort((a, b) => a - b);
    return [steps, curves.map(curve => {
        const by = new Map(rowsOf(curve).map(row => [row.step, row[curve.key]]));
        return steps.map(step => by.get(step));
    })];
}
