// SPDX-License-Identifier: MIT
// Elements out of plain calls, and `show`, which turns what stands in the page into what should: only what differs is
// touched, so that focus, selection and scroll positions outlive an update. Clicks are found by their data-do (main.js), for an
// element that is kept keeps no listener of its new self.

const SVG = 'http://www.w3.org/2000/svg';

function make(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
        if (value === null || value === undefined || value === false)
            continue;
        if (name === 'css') // set by property: the page's policy forbids style attributes
            for (const [property, v] of Object.entries(value))
                node.style.setProperty(property, v);
        else
            node.setAttribute(name, value === true ? '' : value);
    }
    for (const child of children.flat(Infinity))
        if (child !== null && child !== undefined && child !== false)
            node.append(child);
    return node;
}

export function h(tag, attributes, ...children) {
    return make(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
    return make(document.createElementNS(SVG, tag), attributes, children);
}

function sameKind(a, b) {
    return a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || '') === (b.id || '') &&
        (a.dataset?.key || '') === (b.dataset?.key || '');
}

/** Whether something is unfolded is its reader's to say. */
function isFolding(element, attribute) {
    return element.nodeName === 'DETAILS' && attribute === 'open';
}

function morph(from, to) {
    if (from.nodeType === Node.TEXT_NODE) {
        if (from.data !== to.data)
            from.data = to.data;
        return;
    }
    if (from.dataset?.kept !== undefined) // whoever made it looks after it: a chart, a form being filled in
        return;
    for (const { name } of [...from.attributes])
        if (!to.hasAttribute(name) && name !== 'style' && !isFolding(from, name))
            from.removeAttribute(name);
    for (const { name, value } of [...to.attributes])
        if (name !== 'style' && from.getAttribute(name) !== value)
            from.setAttribute(name, value);
    if (from.style && from.style.cssText !== to.style.cssText)
        from.style.cssText = to.style.cssText;
    morphChildren(from, [...to.childNodes]);
}

function morphChildren(parent, wanted) {
    let at = parent.firstChild;
    for (const node of wanted) {
        let match = at;
        while (match && !sameKind(match, node))
            match = match.nextSibling;
        if (!match) {
            parent.insertBefore(node, at);
            continue;
        }
        while (at !== match) {
            const gone = at;
            at = at.nextSibling;
            gone.remove();
        }
        at = match.nextSibling;
        morph(match, node);
    }
    while (at) {
        const gone = at;
        at = at.nextSibling;
        gone.remove();
    }
}

/** The children of `parent` become `children`. */
export function show(parent, ...children) {
    morphChildren(parent, [...make(document.createElement(parent.tagName), null, children).childNodes]);
}
