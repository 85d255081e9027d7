// Takes the README's three pictures from the running program:
// `npm --prefix web/dashboard run screenshots`. RINGWELL_BIN sets the program, CHROMIUM the browser
// (/usr/bin/chromium).
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

import { chromium } from 'playwright-core';

import { CHROMIUM } from '../chromium.mjs';

const folder = mkdtempSync(join(tmpdir(), 'ringwell-screenshots-'));
const pictures = fileURLToPath(new URL('../../docs/pictures/', import.meta.url));
mkdirSync(pictures, { recursive: true });
const words = ['demo', '--data', join(folder, 'data'), '--listen', '127.0.0.1:0', '--shards', '2', '--numbers', '100', '--durability', 'os'];
const demo = spawn(process.env.RINGWELL_BIN, words, { stdio: ['ignore', 'pipe', 'ignore'] });
let address;
for await (const line of createInterface({ input: demo.stdout })) {
  address = /http:\/\/127\.0\.0\.1:\d+\/#[0-9a-f]{64}/.exec(line)?.[0];
  if (address) break;
}
demo.stdout.resume();
const browser = await chromium.launch(CHROMIUM);
const context = await browser.newContext({
  viewport: { width: 1200, height: 800 },
  userAgent: 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36',
});
const shop = await context.newPage();
const slide = (id, value) => shop.$eval(`#${id}`, (input, to) => {
  input.value = to;
  input.dispatchEvent(new Event('input', { bubbles: true }));
}, String(value));
// The visitor comes from an advertisement. The call's picture shows its parameters.
await shop.goto(address.replace('/#', '/?utm_source=google&utm_medium=cpc&utm_campaign=spring-tyres#'));
await shop.waitForFunction(() => document.querySelector('#number').textContent !== '800-555-0100');
const ui = await shop.getAttribute('body', 'data-dashboard');
const page = await context.newPage();
await page.goto(`${ui}/ui/login${new URL(address).hash}`);
await page.waitForSelector('text=Numbers a second');
await shop.click('#ring');
// The pool has a hundred numbers, and each is locked out for 20 s: enough for 5 visitors a second.
await slide('load', 5);
await shop.waitForTimeout(25_000);
await slide('load', 10);
await shop.waitForTimeout(25_000);
const pool = await shop.getAttribute('a[href*="/ui/pools/"]', 'href');
for (const [name, path, wait] of [['now', `${ui}/ui/`, '.chart canvas'], ['pool', pool, '.chart canvas'], ['calls', `${ui}/ui/calls`, 'tbody']]) {
  await page.goto(path);
  await page.waitForSelector(wait);
  if (name === 'calls') {
    await page.click('tbody a');
    await page.waitForSelector('text=The visitor is known');
  }
  await page.waitForTimeout(500);
  await page.screenshot({ path: join(pictures, `${name}.png`) });
}
await browser.close();
const ended = new Promise((done) => demo.once('exit', done));
demo.kill('SIGTERM');
await ended;
rmSync(folder, { recursive: true, force: true });
