// SPDX-License-Identifier: MIT
// Numbers as people read them.

export function bytes(n) {
    if (!Number.isFinite(n))
        return '–';
    for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
        if (n < 1024 || unit === 'GiB')
            return `${n < 10 && unit !== 'B' ? n.toFixed(1) : Math.round(n)} ${unit}`;
        n /= 1024;
    }
}

export function mbps(n) {
    if (!(n > 0))
        return '';
    return n < 1 ? `${Math.round(n * 1000)} kb/s` : n < 1000 ? `${n < 10 ? n.toFixed(1) : Math.round(n)} Mb/s` :
        `${n / 1000 % 1 && n < 100000 ? (n / 1000).toFixed(1) : Math.round(n / 1000)} Gb/s`;
}

/** 0.4 s, 12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h */
export function span(s) {
    if (!Number.isFinite(s) || s < 0)
        return '–';
    if (s < 1)
        return `${Math.round(s * 1000)} ms`;
    if (s < 10)
        return `${s.toFixed(1)} s`;
    if (s < 60)
        return `${Math.floor(s)} s`;
    if (s < 3600)
        return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
    if (s < 86400)
        return `${Math.floor(s / 3600)} h ${Math.floor(s / 60 % 60)} min`;
    return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600 % 24)} h`;
}

/** Whole seconds, for what counts up before the reader's eyes. */
export function age(s) {
    return span(s < 10 && s >= 0 ? Math.floor(s) || 0.001 : s).replace(/^1 ms$/, '0 s').replace('.0 s', ' s');
}

export function number(x, digits = 4) {
    if (!Number.isFinite(x))
        return '–';
    const size = Math.abs(x);
    if (size && (size < 1e-3 || size >= 1e6))
        return x.toExponential(digits > 2 ? 2 : 1).replace('e', ' e').replace('+', '');
    return size >= 100 ? Math.round(x).toLocaleString('en') : String(Number(x.toPrecision(digits)));
}

export function percent(x) {
    return Number.isFinite(x) ? `${(100 * x).toFixed(x < 0.1 ? 1 : 0)} %` : '–';
}

export function clock(seconds) {
    return seconds ? new Date(seconds * 1000).toLocaleTimeString([], { hour12: false }) : '–';
}

/** A moment as it is said today: the time alone, else with its day. */
export function moment(seconds) {
    if (!seconds)
        return '–';
    const d = new Date(seconds * 1000), today = d.toDateString() === new Date().toDateString();
    return (today ? '' : `${d.toLocaleDateString([], { month: 'short', day: 'numeric' })} `) +
        d.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hour12: false });
}

export function plural(n, one, many = `${one}s`) {
    return `${n} ${n === 1 ? one : many}`;
}
