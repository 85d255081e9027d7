// The demo as a new user sees it: one address, a personal number, the dashboard beside it, load,
// overflow and recovery. RINGWELL_BIN sets the program.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';

import { chromium } from 'playwright-core';

import { CHROMIUM } from '../../chromium.mjs';
let browser;
let demo;
let folder;
let address;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'ringwell-demo-'));
  const words = ['demo', '--data', join(folder, 'data'), '--listen', '127.0.0.1:0', '--shards', '2', '--numbers', '40', '--durability', 'os'];
  demo = spawn(process.env.RINGWELL_BIN, words, { stdio: ['ignore', 'pipe', 'ignore'] });
  for await (const line of createInterface({ input: demo.stdout })) {
    address = /http:\/\/127\.0\.0\.1:\d+\/#[0-9a-f]{64}/.exec(line)?.[0];
    if (address) break;
  }
  assert.ok(address, 'the demo prints an address');
  demo.stdout.resume();
  browser = await chromium.launch(CHROMIUM);
});

after(async () => {
  await browser?.close();
  const ended = new Promise((done) => demo.once('exit', done));
  demo.kill('SIGTERM');
  await ended;
  rmSync(folder, { recursive: true, force: true });
});

const slide = (page, id, value) => page.$eval(`#${id}`, (input, to) => {
  input.value = to;
  input.dispatchEvent(new Event('input', { bubbles: true }));
}, String(value));

// Opens the shop as a new visitor, and the dashboard in further tabs.
const visit = async () => {
  const context = await browser.newContext({ userAgent: 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36' });
  const shop = await context.newPage();
  await shop.goto(address);
  await shop.waitForFunction(() => document.querySelector('#number').textContent !== '800-555-0100');
  const number = (await shop.textContent('#number')).replace(/\D/g, '').slice(-10);
  const follow = async (id) => {
    const [page] = await Promise.all([context.waitForEvent('page'), shop.click(id)]);
    await page.waitForLoadState();
    return page;
  };
  const dashboard = await follow('#open');
  // On a busy machine, the server is slow at times, and the page says so.
  await dashboard.waitForSelector('text=All is well', { timeout: 180_000 });
  return { context, shop, number, follow, dashboard };
};

// Visits the shop until the number is a personal one. On a busy machine, the server may be late,
// and then rightly answers with the overflow number.
const visitInTime = async () => {
  for (let tries = 0; ; tries += 1) {
    const visitor = await visit();
    const who = await visitor.follow('#who');
    assert.match(await who.textContent('h1'), new RegExp(visitor.number));
    const banner = await who.textContent('.banner');
    if (/Held by one visitor/.test(banner)) return visitor;
    assert.ok(tries < 5, `five visitors in a row got no number of their own: ${banner}`);
    await visitor.context.close();
  }
};

test('a visitor gets a number, the dashboard shows the visitor, and load and slowness are visible', async () => {
  const { context, shop, number, follow, dashboard } = await visitInTime();
  await shop.click('#ring');
  const calls = await follow('text=the call with its visitor');
  for (let tries = 0; tries < 40 && !(await calls.textContent('main tbody')).includes('answered'); tries += 1) {
    await calls.waitForTimeout(500);
    await calls.reload();
  }
  const call = await calls.textContent('main tbody');
  for (const said of [number, 'answered', 'known', '100 %']) assert.ok(call.includes(said), `${said}: ${call}`);

  // The built-in receiver has verified the event.
  await shop.waitForFunction(() => document.querySelector('#webhooks').textContent.includes('call.completed: the signature is valid, the visitor is known'), null, { timeout: 30_000 });
  const webhooks = await follow('text=the call with its visitor');
  await webhooks.click('nav >> text=Webhooks');
  await webhooks.waitForSelector('text=accepts events');

  const ui = (await shop.getAttribute('body', 'data-dashboard'));
  const session = (await context.cookies()).find((one) => one.name === 'rw_session');
  const now = async () => (await fetch(`${ui}/ui/now.json`, { headers: { cookie: `${session.name}=${session.value}` } })).json();
  const until = async (holds) => {
    for (let tries = 0; tries < 120; tries += 1) {
      const state = await now();
      if (holds(state)) return state;
      await new Promise((done) => setTimeout(done, 500));
    }
    throw new Error(`that did not happen: ${JSON.stringify(await now())}`);
  };
  const top = await shop.getAttribute('#load', 'max');
  await slide(shop, 'load', top);
  await until((state) => state.overflow_per_second.pool_too_small > 0 && state.pools_too_small === 1);
  // The open page updates by itself, without another request.
  await dashboard.waitForSelector('text=1 ring pool is too small', { timeout: 20_000 });
  await slide(shop, 'slow', 200);
  await until((state) => state.overflow.server_too_slow > 0);
  await slide(shop, 'slow', 0);
  await slide(shop, 'load', 0);
  // The pool's lifetime is 20 s. After that, it receives no more requests.
  await until((state) => state.pools_too_small === 0 && state.overflow_per_second.pool_too_small === 0);
  await context.close();
});
