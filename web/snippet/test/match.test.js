// All spellings of a number on pages, and similar texts that are not numbers.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { compile, swap } from '../src/match.js';

const usual = { from: '+18005550100', to: '+12125550177', formatted: '(212) 555-0177', cc: '1' };
const swaps = [compile(usual)];
const swapped = (text, of = swaps) => (swap(text, of) || [...text]).join('');

const CASES = [
  ['8005550100', '2125550177'],
  ['800 555 0100', '212 555 0177'],
  ['800-555-0100', '212-555-0177'],
  ['800.555.0100', '212.555.0177'],
  ['(800) 555 0100', '(212) 555 0177'],
  ['(800) 555-0100', '(212) 555-0177'],
  ['(800)-555-0100', '(212)-555-0177'],
  ['(800).555.0100', '(212).555.0177'],
  ['18005550100', '12125550177'],
  ['1 800 555 0100', '1 212 555 0177'],
  ['1-800-555-0100', '1-212-555-0177'],
  ['1.800.555.0100', '1.212.555.0177'],
  ['1 (800) 555 0100', '1 (212) 555 0177'],
  ['1 (800) 555-0100', '1 (212) 555-0177'],
  ['1-(800)-555-0100', '1-(212)-555-0177'],
  ['1.(800).555.0100', '1.(212).555.0177'],
  ['+18005550100', '+12125550177'],
  ['+1 800 555 0100', '+1 212 555 0177'],
  ['+1 (800) 555-0100', '+1 (212) 555-0177'],
  ['+1-800-555-0100', '+1-212-555-0177'],
  ['0018005550100', '0012125550177'],
  ['011 1 800 555 0100', '011 1 212 555 0177'],
  ['tel:+18005550100', 'tel:+12125550177'],
  ['tel:800-555-0100', 'tel:212-555-0177'],
  ['sms:+18005550100?body=Hi', 'sms:+12125550177?body=Hi'],
  ['(800)\u00a0555\u20110100', '(212)\u00a0555\u20110177'],
  ['800\u2007555\u20090100', '212\u2007555\u20090177'],
  ['800\u2013555\u22120100', '212\u2013555\u22120177'],
  ['800\u202f555\u202f0100', '212\u202f555\u202f0177'],
  ['800 \u2022 555 \u2022 0100', '212 \u2022 555 \u2022 0177'],
  ['800\u00b7555\u00b70100', '212\u00b7555\u00b70177'],
  ['800/555/0100', '212/555/0177'],
  ['80 05 55 01 00', '21 25 55 01 77'],
  // White space counts as the browser renders it.
  ['(800)\n        555-0100', '(212)\n        555-0177'],
  ['\n      800\n      555\n      0100', '\n      212\n      555\n      0177'],
  ['800    -    555  -  0100', '212    -    555  -  0177'],
  ['Call 800-555-0100.', 'Call 212-555-0177.'],
  ['(800-555-0100)', '(212-555-0177)'],
  ['Call:800-555-0100,now', 'Call:212-555-0177,now'],
  ['800-555-0100 ext. 5', '212-555-0177 ext. 5'],
  ['800-555-0100x5', '212-555-0177x5'],
  ['800-555-0100 or 800.555.0100', '212-555-0177 or 212.555.0177'],
  ['Tel.800-555-0100\n(toll-free)', 'Tel.212-555-0177\n(toll-free)'],
];

for (const [text, expected] of CASES) {
  test(`${JSON.stringify(text)} becomes ${JSON.stringify(expected)}`, () => {
    assert.equal(swapped(text), expected);
    // The reverse swap, as after consent is withdrawn.
    const back = [compile({ from: usual.to, to: usual.from, formatted: usual.from, cc: '1' })];
    assert.equal(swapped(expected, back), text);
  });
}

const OTHERS = [
  '98005550100', '80055501001', '5-800-555-0100', '800-555-0100-1', '800-555-0101', '800-555-010',
  '0800 555 0100', '+44 800 555 0100', '+44 (0)800 555 0100', 'a8005550100', '8005550100f', '8005550100_1',
  '1-800-FLOWERS', '0.8005550100', '8005550100.5', '800,555,0100', '800:555:0100', '', '1800555010',
];

for (const text of OTHERS) {
  test(`${JSON.stringify(text)} is unchanged`, () => assert.equal(swap(text, swaps), undefined));
}

test('a number of another length or country is written in its usual form', () => {
  const long = [compile({ ...usual, to: '+4915112345678', formatted: '01511 2345678' })];
  assert.equal(swapped('Call (800) 555-0100 now', long), 'Call 01511 2345678 now');
  assert.equal(swapped('Call +1 800 555 0100', long), 'Call +4915112345678');
});

test('much white space between digits takes no time', () => {
  const start = performance.now();
  assert.equal(swap(`8${[...'00555010'].map((digit) => ' '.repeat(2000) + digit).join('')}`, swaps), undefined);
  assert.ok(performance.now() - start < 1000);
});

test('a number with a trunk zero keeps it', () => {
  const london = [compile({ from: '+442079460000', to: '+442079460123', formatted: '020 7946 0123', cc: '44' })];
  for (const [text, expected] of [
    ['020 7946 0000', '020 7946 0123'],
    ['(020) 7946 0000', '(020) 7946 0123'],
    ['+44 20 7946 0000', '+44 20 7946 0123'],
    ['+44 (0)20 7946 0000', '+44 (0)20 7946 0123'],
    ['0044 20 7946 0000', '0044 20 7946 0123'],
  ]) assert.equal(swapped(text, london), expected);
});

test('text that is not the number is never changed, in 20,000 random texts', () => {
  let seed = 1;
  const random = (below) => {
    for (const [by, left] of [[13, true], [17, false], [5, true]]) seed ^= left ? seed << by : seed >>> by;
    return (seed >>> 0) % below;
  };
  const parts = ['800', '555', '0100', '8', '0', '1', '5', ' ', '-', '.', '(', ')', '+', 'a', ',', '\n', '\u00a0', '800-555-0100', '800-555-0100', '8005550100'];
  let changed = 0;
  for (let round = 0; round < 20000; round++) {
    const text = Array.from({ length: 1 + random(12) }, () => parts[random(parts.length)]).join('');
    const units = swap(text, swaps);
    if (!units) continue;
    changed++;
    const after = units.join('');
    assert.equal(after.length, text.length, text);
    for (let at = 0; at < text.length; at++) {
      if (!/\d/.test(text[at])) assert.equal(after[at], text[at], `${text} at ${at}`);
    }
    // Only whole numbers are replaced.
    const digits = (of) => of.replace(/\D/g, '');
    assert.equal(digits(after).replaceAll('2125550177', '8005550100'), digits(text), text);
  }
  assert.ok(changed > 500, `${changed}`);
});
