// Changes to web sites in a real Chromium, against the real program with its directory in a
// database.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { chromium } from 'playwright-core';

import { CHROMIUM } from '../../chromium.mjs';
import { DATABASE, TOKEN, start } from './server.js';

const axe = createRequire(import.meta.url).resolve('axe-core');
const vnu = createRequire(import.meta.url)('vnu-jar');

let browser;
let server;

before(async () => {
  server = await start(DATABASE);
  const body = JSON.stringify({ origins: ['https://two.example'], swaps: [{ number: '+18005550102', ring_pool: 1 }] });
  const made = await fetch(`${server.ui}/v1/sites/pk_second`, { method: 'PUT', headers: { authorization: `Bearer ${TOKEN}` }, body });
  assert.equal(made.status, 201, await made.text());
  browser = await chromium.launch(CHROMIUM);
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Opens a browser with a logged-in user, and collects the browser's errors. */
const person = async (options = {}) => {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const complaints = [];
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => complaints.push(message.text()));
  page.on('dialog', (dialog) => { complaints.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  await page.goto(`${server.ui}/ui/login`);
  await page.fill('input[name=token]', TOKEN);
  await page.click('main button');
  await page.waitForURL(`${server.ui}/ui/`);
  return { context, page, complaints };
};

/**
 * Returns the page's accessibility problems, found by axe outside the page's content security
 * policy.
 */
const violations = async (context, page) => {
  const session = await context.newCDPSession(page);
  const { frameTree } = await session.send('Page.getFrameTree');
  const { executionContextId } = await session.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id });
  const run = (expression) => session.send('Runtime.evaluate', { expression, contextId: executionContextId, awaitPromise: true, returnByValue: true });
  await run(readFileSync(axe, 'utf8'));
  const { result } = await run("axe.run().then((all) => all.violations.map((one) => one.id + ': ' + one.nodes.map((node) => node.target).join(' | ')).concat(all.passes.length ? [] : ['nothing was looked at']))");
  return result.value;
};

const valid = (t, documents) => {
  if (!documents.length || spawnSync('java', ['-version']).status !== 0) return;
  const folder = mkdtempSync(join(tmpdir(), 'ringwell-pages-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const files = documents.map((text, place) => {
    const file = join(folder, `${place}.html`);
    writeFileSync(file, text);
    return file;
  });
  const checked = spawnSync('java', ['-jar', vnu, '--format', 'json', ...files], { encoding: 'utf8' });
  const { messages } = JSON.parse(checked.stderr || checked.stdout);
  const faults = messages.filter((one) => one.type === 'error' || one.subType === 'warning');
  assert.deepEqual(faults.map((one) => `${one.url} ${one.message} ${one.extract ?? ''}`), []);
};

const source = (page) => page.evaluate(async () => (await fetch(location.href)).text());

for (const [name, options] of Object.entries({
  light: { colorScheme: 'light' },
  'dark and narrow': { colorScheme: 'dark', viewport: { width: 320, height: 640 } },
  'without JavaScript': { javaScriptEnabled: false },
})) {
  test(`a site is added, changed and removed: ${name}`, async (t) => {
    const hasScript = options.javaScriptEnabled !== false;
    const { context, page, complaints } = await person(options);
    await page.click('nav >> text=Sites');
    const add = page.locator('form[action="sites/new"]');
    await add.locator('[name=key]').fill('pk_blog');
    await add.locator('[name=origins]').fill('https://blog.example\nhttps://*.blog.example');
    await add.locator('[name=swaps]').fill('+18005550101=2');
    const documents = [];
    const look = async () => {
      if (!hasScript) return;
      assert.deepEqual(await violations(context, page), [], page.url());
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      assert.ok(wide <= 0, `${page.url()} is ${wide} px too wide`);
      documents.push(await source(page));
    };
    await look();
    await add.locator('button').click();
    await page.waitForURL(`${server.ui}/ui/sites/pk_blog`);
    assert.match(await page.textContent('pre'), /data-site="pk_blog"/);
    assert.match(await page.textContent('main'), /https:\/\/\*\.blog\.example/);
    await look();
    // The text typed before is still there, even without JavaScript.
    const change = page.locator('form[action="pk_blog/save"]');
    assert.equal(await change.locator('[name=origins]').inputValue(), 'https://blog.example\nhttps://*.blog.example');
    await change.locator('[name=consent]').selectOption('required');
    await change.locator('button').click();
    await page.waitForURL(`${server.ui}/ui/sites/pk_blog`);
    assert.match(await page.textContent('pre'), /data-consent="required"/);
    assert.match(await page.textContent('main'), /Who changed it/);
    await page.click('summary');
    await look();
    await page.click('text=Remove it');
    await page.waitForURL(`${server.ui}/ui/sites`);
    assert.doesNotMatch(await page.textContent('table'), /pk_blog/);
    valid(t, documents);
    assert.deepEqual(complaints, []);
    await context.close();
  });
}

test('if two tabs change a site, the later one gets an error and overwrites nothing that it did not show', async () => {
  const { context, page } = await person();
  const other = await context.newPage();
  for (const tab of [page, other]) await tab.goto(`${server.ui}/ui/sites/pk_second`);
  for (const [tab, leases] of [[page, '30'], [other, '90']]) {
    const change = tab.locator('form[action="pk_second/save"]');
    await change.locator('[name=leases_per_minute]').fill(leases);
    await change.locator('button').click();
    await tab.waitForLoadState();
  }
  assert.match(await other.textContent('main'), /was changed after this page was loaded/);
  await other.goto(`${server.ui}/ui/sites/pk_second`);
  assert.equal(await other.inputValue('[name=leases_per_minute]'), '30');
  await context.close();
});

test('a configured site is changed in the directory, and returns to its file', async () => {
  const { context, page, complaints } = await person();
  await page.goto(`${server.ui}/ui/sites/pk_shop`);
  assert.match(await page.textContent('main'), /is defined in the configuration.*SIGHUP/s);
  const change = page.locator('form[action="new"]');
  const before = await change.locator('[name=origins]').inputValue();
  await change.locator('[name=leases_per_minute]').fill('77');
  assert.deepEqual(await violations(context, page), []);
  await change.locator('button').click();
  await page.waitForURL(`${server.ui}/ui/sites/pk_shop`);
  assert.equal(await page.inputValue('form[action="pk_shop/save"] [name=leases_per_minute]'), '77');
  assert.equal(await page.inputValue('form[action="pk_shop/save"] [name=origins]'), before);
  await page.click('summary');
  assert.match(await page.textContent('details'), /configuration then apply again/);
  await page.click('text=Remove it');
  await page.waitForURL(`${server.ui}/ui/sites`);
  await page.goto(`${server.ui}/ui/sites/pk_shop`);
  assert.notEqual(await page.inputValue('form[action="new"] [name=leases_per_minute]'), '77');
  assert.deepEqual(complaints, []);
  await context.close();
});

test('after the log-out neither the back button nor an old form has an effect', async () => {
  const { context, page } = await person();
  await page.goto(`${server.ui}/ui/sites/pk_second`);
  const value = (name) => page.inputValue(`form[action="pk_second/save"] [name=${name}]`);
  const form = { form: await value('form'), seen: await value('seen'), origins: await value('origins'), swaps: await value('swaps'), consent: 'off', leases_per_minute: '7' };
  const [{ name, value: secret }] = await context.cookies();
  await page.goto(`${server.ui}/ui/pools`);
  await page.click('text=Log out');
  await page.waitForURL(`${server.ui}/ui/login`);
  await page.goBack();
  await page.waitForLoadState();
  assert.doesNotMatch(await page.textContent('body'), /Spring sale|pk_second/);
  // A saved cookie and form are no longer valid, because their session has ended.
  const headers = { cookie: `${name}=${secret}`, 'content-type': 'application/x-www-form-urlencoded' };
  const sent = await fetch(`${server.ui}/ui/sites/pk_second/save`, { method: 'POST', headers, body: new URLSearchParams(form), redirect: 'manual' });
  assert.deepEqual([sent.status, sent.headers.get('location')], [303, '../../login']);
  const again = await person();
  await again.page.goto(`${server.ui}/ui/sites/pk_second`);
  assert.notEqual(await again.page.inputValue('[name=leases_per_minute]'), '7');
  await context.close();
  await again.context.close();
});

test('huge ids and odd paths are missing pages, also for forms', async () => {
  const { context, page } = await person();
  for (const path of ['pools/18446744073709551616', 'pools/-1', 'pools/1e3', 'pools/%00', 'sites/pk_%3Cscript%3E', 'sites/..%2Fpools', `sites/${'x'.repeat(5000)}`, 'pools/1/2/3']) {
    const answer = await page.goto(`${server.ui}/ui/${path}`);
    assert.equal(answer.status(), 404, path.slice(0, 60));
    const posted = await page.evaluate(async (to) => (await fetch(to, { method: 'POST', body: 'form=guessed' })).status, `${server.ui}/ui/${path}/save`);
    assert.equal(posted, 403, path.slice(0, 60));
  }
  await context.close();
});
