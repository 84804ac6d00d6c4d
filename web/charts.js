// SPDX-License-Identifier: MIT
// Curves over steps or over time, drawn by dygraphs. All charts of a page share their steps: zooming one zooms all.

import { h } from './dom.js';
import { moment, number } from './words.js';

// dygraphs' own legend writes style attributes, which the page's policy forbids; ours is a line of text beside the title.
window.Dygraph.PLUGINS = window.Dygraph.PLUGINS.filter(plugin => plugin !== window.Dygraph.Plugins.Legend);

const POINTS = 3000; // more than a screen is wide: the curve keeps the extremes of what is left out

function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** An exponential mean, corrected for its beginning; gaps stay gaps. */
export function smoothed(values, weight) {
    let mean = 0, mass = 0;
    return values.map(v => {
        if (!Number.isFinite(v))
            return null;
        mean = weight * mean + (1 - weight) * v;
        mass = weight * mass + (1 - weight);
        return mean / mass;
    });
}

/** At most POINTS rows: of each run of rows the lowest and the highest of the first curve, and every row with a measurement. */
function thinned(rows, lone) {
    if (rows.length <= POINTS)
        return rows;
    const run = Math.ceil(2 * rows.length / POINTS), kept = [];
    for (let i = 0; i < rows.length; i += run) {
        const part = rows.slice(i, i + run);
        const low = part.reduce((a, b) => b[1] < a[1] ? b : a), high = part.reduce((a, b) => b[1] > a[1] ? b : a);
        kept.push(...part.filter(r => r === low || r === high || (lone && Number.isFinite(r[lone]))));
    }
    return kept;
}

/**
 * options.time: x is seconds since 1970; options.words: what a figure is called, `number` without; options.binary: grid lines at multiples of 1024.
 * series: [{name, color, words, width, points}], `words` being the colour of its figures, if not the curve's; the first one gives the curve that is thinned.
 * The element is made once and looks after itself; call `update(steps, …)` with what there is.
 */
export class Chart {
    constructor(title, series, options = {}) {
        this.series = series;
        this.options = options;
        this.legend = h('span', { class: 'legend' });
        this.canvas = h('div', { class: `plot ${options.large ? 'large' : ''}`, role: 'img', 'aria-label': title });
        this.title = title;
        this.element = h('figure', { class: 'chart', 'data-kept': '', 'data-key': `${title}${options.id || ''}` },
            h('figcaption', null, h('span', { class: 'strong' }, title), this.legend), this.canvas);
        this.rows = null;
        this.log = false;
        this.words = options.words || number;
    }

    at(x) {
        return this.options.time ? moment(x / 1000) : `step ${x}`;
    }

    look() {
        return {
            colors: this.series.map(s => color(s.color)), axisLineColor: color('--line'), gridLineColor: color('--grid'),
            axisLabelColor: color('--faint'), // ignored by those versions of dygraphs that take it from the style sheet
        };
    }

    make() {
        const perSeries = {};
        for (const s of this.series)
            perSeries[s.name] = { strokeWidth: s.width ?? 1.6, drawPoints: !!s.points, pointSize: 3, connectSeparatedPoints: true };
        this.graph = new window.Dygraph(this.canvas, this.rows, {
            labels: [this.options.time ? 'time' : 'step', ...this.series.map(s => s.name)], series: perSeries, ...this.look(), gridLineWidth: 1, axisLabelFontSize: 11,
            axisLabelWidth: 46, highlightCircleSize: 3, logscale: this.log, rightGap: 8, xRangePad: 4, animatedZooms: false,
            axes: { y: { valueFormatter: v => this.words(v), axisLabelFormatter: v => this.options.words ? this.words(v) : number(v, 3), axisLabelWidth: this.options.words ? 66 : 46, pixelsPerLabel: this.options.large ? 34 : 26, labelsKMG2: !!this.options.binary },
                x: { drawGrid: false, pixelsPerLabel: this.options.time ? 80 : 36, axisLabelWidth: this.options.time ? 66 : 46 } },
            highlightCallback: (event, x, points) => this.tell(x, points),
            unhighlightCallback: () => this.tellLast(),
            drawCallback: (g, first) => !first && this.options.onZoom?.(this, g.isZoomed('x') ? g.xAxisRange() : null),
        });
    }

    word(s, value) {
        return h('span', { css: { color: `var(${s.words || s.color})` } }, ` ${this.series.length > 1 ? `${s.name} ` : ''}${this.words(value)}`);
    }

    tell(x, points) {
        this.legend.replaceChildren(this.at(x), ...points.filter(p => Number.isFinite(p.yval)).map(p => {
            const s = this.series.find(one => one.name === p.name);
            return this.word(s, p.yval);
        }));
    }

    tellLast() {
        const row = this.rows[this.rows.length - 1];
        const text = this.series.map((s, column) => {
            const i = column + 1;
            let k = this.rows.length - 1;
            while (k > 0 && !Number.isFinite(this.rows[k][i]))
                k--;
            const v = this.rows[k][i];
            return Number.isFinite(v) ? this.word(s, v) : null;
        });
        this.legend.replaceChildren(...text.filter(Boolean));
        this.canvas.setAttribute('aria-label', `${this.title}: ${this.rows.length} points, from ${this.at(this.rows[0][0])} to ${this.options.time ? this.at(row[0]) : row[0]}. Last: ${this.legend.textContent.trim()}`);
    }

    /** columns: an array of values per series, beside `x`. */
    update(x, columns, log = false) {
        const rows = thinned(x.map((step, i) => [this.options.time ? new Date(step * 1000) : step, ...columns.map(c => Number.isFinite(c[i]) ? c[i] : null)]),
            this.series.findIndex(s => s.points) + 1);
        this.log = log;
        this.element.hidden = rows.length === 0;
        if (!rows.length)
            return;
        this.rows = rows;
        if (!this.canvas.isConnected || !this.canvas.clientWidth)
            return;
        if (!this.graph)
            this.make();
        else
            this.graph.updateOptions({ file: rows, logscale: log });
        if (!this.canvas.matches(':hover'))
            this.tellLast();
    }

    zoom(range) {
        this.graph?.updateOptions({ dateWindow: range });
    }

    /** After the colours have changed. */
    recolor() {
        this.graph?.updateOptions(this.look());
    }

    free() {
        this.graph?.destroy();
        this.graph = null;
    }
}
