// Swaps numbers in the page, including those that appear later.
//
// Reads text nodes and a few attributes, never innerHTML, and writes only what differs. Text that
// spans several inline elements is matched as one piece, and each digit is written in its place.

import { compile, swap } from './match.js';

// Inline elements are recognized by name, because reading the style after each write would cause a
// layout each time.
const INLINE = /^(#|(A|B|EM|FONT|I|MARK|SMALL|SPAN|STRONG|U)$)/;
const SKIP = 'style,textarea,[contenteditable],[data-rw-skip],script';
const ATTRIBUTES = ['href', 'title', 'content', 'aria-label', 'data-rw-number'];
const ELEMENTS = '[href^="tel:" i],[href^="sms:" i],[aria-label],[title],[itemprop=telephone],[data-rw-number]';
/** The maximum duration of a piece of work, in milliseconds, before the browser can continue. */
const SLICE = 6;
/**
 * If a node is reset this often within a second, it is no longer changed, because another script
 * controls it.
 */
const FIGHTS_MAX = 20;

/** The number of times that each node was written within this second. */
const fights = new Map();
setInterval(() => fights.clear(), 1000);
let swaps = [];
/** A selector for elements that are never changed. */
let skip;
let queue = [];

const write = (node, name, value, now) => {
  const times = fights.get(node) | 0;
  if (value === now || times > FIGHTS_MAX) return;
  fights.set(node, times + 1);
  if (name) node.setAttribute(name, value);
  else node.textContent = value;
};

const attributes = (element) => {
  if (element.closest(skip)) return;
  for (const name of ATTRIBUTES) {
    const value = element.getAttribute(name);
    const units = value && swap(value, swaps);
    if (name === 'data-rw-number') {
      const own = swaps.find((swap) => swap.from === value);
      if (own) write(element, element.href && 'href', element.href ? `tel:${own.to}` : own.formatted, element.href || element.textContent);
    } else if (units) write(element, name, units.join(''), value);
  }
};

/** Swaps numbers in the text nodes of one block, which form one text. */
const run = (nodes) => {
  const units = swap(nodes.map((node) => node.data).join(''), swaps);
  if (units) for (const node of nodes) write(node, 0, units.splice(0, node.data.length).join(''), node.data);
};

/** Returns the element around `node` whose text a reader sees as one piece. */
const block = (node) => {
  return INLINE.test(node.nodeName) ? block(node.parentNode) : node;
};

/**
 * Returns a piece of work: a function that walks the text below `top` until it is finished or out
 * of time.
 */
const walk = (top, last) => {
  const walker = document.createTreeWalker(top, 4);
  let nodes = [];
  return (until) => {
    while (Date.now() <= until) {
      const node = walker.nextNode();
      if (!node) {
        run(nodes);
        return true;
      }
      const data = node.data;
      if (!/\d/.test(data) && !nodes[0]) continue;
      if (last !== (last = block(node))) run(nodes.splice(0));
      if (!node.parentNode.closest(skip)) nodes.push(node);
      // A number never continues after a letter, so a new text begins there.
      if (/\p{L}/u.test(data)) {
        run(nodes);
        nodes = /\d\P{L}*$/u.test(data) ? nodes.slice(-1) : [];
      }
    }
  };
};

const add = (node) => {
  if (!node.isConnected) return;
  const top = block(node);
  queue.push(() => [top, ...top.querySelectorAll(ELEMENTS)].forEach(attributes) || true, walk(top));
};

const work = () => {
  const until = Date.now() + SLICE;
  while (queue[0]?.(until)) queue.shift();
  if (queue[0]) setTimeout(work);
  // Our own writes are ignored.
  observer.takeRecords();
};

const observer = new MutationObserver((records) => {
  const changed = new Set();
  for (const { target, addedNodes } of records) for (const node of addedNodes[0] ? addedNodes : [target]) changed.add(node);
  changed.forEach(add);
  work();
});

/** Shows `next` in the whole page from now on, also in JSON-LD unless `inData` is undefined. */
export const show = (next, inData) => {
  skip = SKIP + (inData == null ? '' : ':not([type$=ld\\+json])');
  swaps = next.map(compile);
  queue = [];
  observer.observe(document, { subtree: true, childList: true, characterData: true, attributeFilter: ATTRIBUTES });
  add(document.documentElement);
  work();
};
