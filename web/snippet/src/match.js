// Finds a telephone number in text, in any spelling, and replaces it with another in the same
// spelling.
//
// A swap maps a number to another: { from, to, formatted, cc }. `from` and `to` are E.164,
// `formatted` is the national form of `to`, and `cc` is the digits of their common country code.

// The characters between two digits: spaces, dots, dashes and parentheses of all kinds.
const GAP = '\\s*([^\\d\\p{L}\\s+,:;]\\s*){0,3}';
// Texts that prevent a match next to them: digits of a longer number, a word, or another country's
// prefix. An extension may follow. A browser without look-behinds (Safari before 16.4) swaps
// nothing.
const BEFORE = '(?<![\\d\\p{L}_]|\\d[-.]|\\+\\P{L}{1,6})';
const AFTER = '(?![-.]?\\d|_|(?!e?xt?\\P{L})\\p{L})';

const spread = (digits) => digits.split('').join(GAP);

/** Returns the swap with its number's pattern and the digits that replace the number. */
export const compile = (swap) => {
  const { cc, from, to } = swap;
  const start = 1 + cc.length;
  const national = from.slice(start);
  // North America uses no trunk zero: 0800 there begins another country's number.
  const trunk = cc === '1' ? '' : `(\\(?0\\)?${GAP})?`;
  return {
    ...swap,
    digits: to.length === from.length && to.startsWith(`+${cc}`) && to.slice(start),
    regexp: new RegExp(`${BEFORE}(((\\+|00|011)${GAP})?${spread(cc)}${GAP})?${trunk}\\(?${spread(national)}${AFTER}`, 'gu'),
  };
};

/**
 * Returns `text` with every number swapped, as an array. It has one entry for each unit of `text`,
 * so that a number that spans several nodes can be written back to its place. Undefined if there is
 * nothing to swap.
 */
export const swap = (text, swaps) => {
  let units;
  for (const { regexp, digits, to, formatted } of swaps) {
    for (const match of text.matchAll(regexp)) {
      const { 0: found, index: start } = match;
      let at = start + found.length;
      units = units || text.split('');
      if (digits) {
        for (let left = digits.length; left;) if (/\d/.test(units[--at])) units[at] = digits[--left];
      } else {
        units.fill('', start, at)[start] = found[0] === '+' ? to : formatted;
      }
    }
  }
  return units;
};
