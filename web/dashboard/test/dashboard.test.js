// The dashboard in a real Chromium, against the real program. RINGWELL_BIN sets the program,
// CHROMIUM the browser (/usr/bin/chromium).
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';

import { chromium } from 'playwright-core';

import { CHROMIUM } from '../../chromium.mjs';
import { HOSTILE, TOKEN, allocate, provider, start } from './server.js';

const axe = createRequire(import.meta.url).resolve('axe-core');
const vnu = createRequire(import.meta.url)('vnu-jar');
const PAGES = ['', 'pools', 'pools/1', 'pools/2', 'pools/3', 'number?number=2125550000', 'calls', 'webhooks', 'sites', 'sites/pk_shop', 'cluster', 'pools/77', 'nothing'];

let browser;
let server;
let cookie;

before(async () => {
  server = await start();
  cookie = await logIn();
  const load = async () => (await (await get('pools/2.json')).json()).load;
  // A pool's load is measured from the first time that its page is requested.
  await until(async () => typeof (await load()) === 'number');
  for (let n = 0; n < 30; n += 1) await allocate(server.api, 2, { visit: n });
  for (let n = 0; n < 5; n += 1) await allocate(server.api, 1, { utm_source: 'spring', m1: HOSTILE });
  await ring('CA1', '+12125550000');
  await allocate(server.api, 3);
  await ring('CA0', '+12125559999');
  // No server has this address, so the endpoint fails from the first event.
  const made = await fetch(`${server.api}/v1/webhooks`, { method: 'POST', headers: { authorization: `Bearer ${TOKEN}` }, body: JSON.stringify({ url: 'https://example.invalid/in' }) });
  assert.equal(made.status, 201, await made.text());
  await ring('CA00', '+12125559999');
  await until(async () => (await (await get('webhooks.json')).json()).endpoints[0]?.failing_since_ms);
  await until(async () => (await load()) > 0);
  browser = await chromium.launch(CHROMIUM);
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

/** Makes a call to `to` that lasts 58 s. */
const ring = async (sid, to) => {
  const answer = await provider(server.calls, '/t/main/answer', { CallSid: sid, CallStatus: 'ringing', From: '+14155551234', To: to });
  assert.equal(answer.status, 200, answer.text);
  const action = /action="https:\/\/calls\.example([^"]+)"/.exec(answer.text)[1].replaceAll('&amp;', '&');
  await provider(server.calls, action, { CallSid: sid, DialCallStatus: 'completed', DialCallDuration: '58', DialBridged: 'true' });
};

const until = async (holds) => {
  for (let tries = 0; tries < 300; tries += 1) {
    if (await holds().catch(() => false)) return;
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error('that did not happen within 30 s');
};

/** Sends a request with exactly these headers; `fetch` would omit some. */
const ask = (path, { method = 'GET', headers = {}, body = '' } = {}) => new Promise((done, fail) => {
  const sent = request(`${server.ui}${path}`, { method, headers, agent: false }, (answer) => {
    let text = '';
    answer.setEncoding('utf8').on('data', (piece) => { text += piece; }).on('end', () => done({ status: answer.statusCode, headers: answer.headers, text }));
  });
  sent.on('error', fail).end(body);
});

const form = (fields, headers = {}) => ({ method: 'POST', headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers }, body: new URLSearchParams(fields).toString() });

const logIn = async () => {
  const answer = await ask('/ui/login', form({ token: TOKEN }));
  assert.equal(answer.status, 303, answer.text);
  return answer.headers['set-cookie'][0].split(';')[0];
};

const get = (path) => fetch(`${server.ui}/ui/${path}`, { headers: path === 'login' ? {} : { cookie } });

/** Opens a page, and collects all errors that the browser reports. */
const open = async (path, options = {}) => {
  const context = await browser.newContext(options);
  const [name, value] = cookie.split('=');
  await context.addCookies([{ name, value, url: server.ui }]);
  const page = await context.newPage();
  const complaints = [];
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => complaints.push(message.text()));
  page.on('dialog', (dialog) => { complaints.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  await page.addInitScript(() => document.addEventListener('securitypolicyviolation', (event) => console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`)));
  await page.goto(`${server.ui}/ui/${path}`, { waitUntil: 'load' });
  return { page, context, complaints };
};

/** Whether the complaint is expected: the browser also reports that a page is missing. */
const expected = (path, complaint) => ['pools/77', 'nothing'].includes(path) && complaint.includes('404');

/** axe rules whose results depend on the colours or on the width. */
const OF_COLOURS = ['color-contrast', 'link-in-text-block'];
const OF_WIDTH = ['target-size', 'scrollable-region-focusable'];

/**
 * Returns the page's accessibility problems, by all rules or some. Like an extension, it runs
 * outside the page's content security policy.
 */
async function problems(page, context) {
  const session = await context.newCDPSession(page);
  const { executionContextId } = await session.send('Page.createIsolatedWorld', { frameId: (await session.send('Page.getFrameTree')).frameTree.frame.id });
  const run = (expression) => session.send('Runtime.evaluate', { expression, contextId: executionContextId, awaitPromise: true, returnByValue: true });
  await run(readFileSync(axe, 'utf8'));
  return async (rules) => {
    const options = JSON.stringify(rules ? { runOnly: rules } : {});
    const { result, exceptionDetails } = await run(`axe.run(${options}).then((all) => all.violations.map((one) => one.id + ': ' + one.nodes.map((node) => node.target + ' ' + node.failureSummary).join(' | ')).concat(all.passes.length ? [] : ['nothing was looked at']))`);
    assert.equal(exceptionDetails, undefined, JSON.stringify(exceptionDetails));
    return result.value;
  };
}

test('every page is accessible and has no errors: light, dark and narrow', async () => {
  for (const path of PAGES) {
    const { page, context, complaints } = await open(path, { colorScheme: 'light' });
    await page.waitForTimeout(150);
    const found = await problems(page, context);
    assert.deepEqual(await found(), [], path);
    await page.emulateMedia({ colorScheme: 'dark' });
    await page.waitForTimeout(150);
    assert.deepEqual(await found(OF_COLOURS), [], `${path} dark`);
    await page.setViewportSize({ width: 320, height: 640 });
    await page.waitForTimeout(150);
    assert.deepEqual(await found([...OF_COLOURS, ...OF_WIDTH]), [], `${path} narrow`);
    const overflowing = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(overflowing <= 0, `${path} is ${overflowing} px too wide`);
    assert.deepEqual(complaints.filter((one) => !expected(path, one)), [], path);
    await context.close();
  }
});

test('every page is valid HTML', async (t) => {
  if (spawnSync('java', ['-version']).status !== 0) return t.skip('there is no Java');
  const folder = mkdtempSync(join(tmpdir(), 'ringwell-pages-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const files = [];
  for (const path of [...PAGES, 'login']) {
    files.push(join(folder, `${files.length}.html`));
    writeFileSync(files.at(-1), await (await get(path)).text());
  }
  const checked = spawnSync('java', ['-jar', vnu, '--format', 'json', ...files], { encoding: 'utf8' });
  const { messages } = JSON.parse(checked.stderr || checked.stdout);
  const faults = messages.filter((one) => one.type === 'error' || one.subType === 'warning');
  assert.deepEqual(faults.map((one) => `${one.url} ${one.message} ${one.extract ?? ''}`), []);
});

test('every fact can be read without JavaScript, and equals its CSV', async () => {
  const { page, context } = await open('pools', { javaScriptEnabled: false });
  const shown = await page.$$eval('tbody tr', (rows) => rows.map((row) => row.cells[0].textContent));
  const csv = (await (await get('pools.csv')).text()).trim().split('\n').slice(1).map((line) => line.split(',')[0]);
  assert.deepEqual(shown, csv);
  await page.click('text=2');
  await page.goto(`${server.ui}/ui/pools/2`);
  assert.match(await page.textContent('.banner'), /Too small\. [\d,]+ more numbers would keep overflow below 1\.0 %/);
  await page.goto(`${server.ui}/ui/number`);
  await page.fill('input[name=number]', '+1 (212) 555-0000');
  await page.click('main button');
  assert.match(await page.textContent('.banner'), /Held by one visitor/);
  assert.match(await page.textContent('table'), /utm_source: spring/);
  await context.close();
});

test('figures change on an open page', async () => {
  const { page, context, complaints } = await open('pools/1');
  const handedOut = () => page.textContent('[data-live=allocated]');
  const before = Number(await handedOut());
  await allocate(server.api, 1);
  await page.waitForFunction((old) => Number(document.querySelector('[data-live=allocated]').textContent) > old, before, { timeout: 10_000 });
  await page.waitForSelector('.chart canvas');
  assert.deepEqual(complaints, []);
  await context.close();
});

test('a link logs in once, and its secret is in no requested address', async () => {
  const made = await fetch(`${server.ui}/v1/ui/links`, { method: 'POST', headers: { authorization: `Bearer ${TOKEN}` } });
  assert.equal(made.status, 201);
  const { path } = await made.json();
  const context = await browser.newContext();
  const page = await context.newPage();
  const sent = [];
  page.on('request', (one) => sent.push(one.url()));
  await page.goto(server.ui + path);
  await page.waitForSelector('text=Numbers a second');
  const secret = path.split('#')[1];
  assert.ok(sent.length > 3 && sent.every((url) => !url.split('#')[0].includes(secret)), sent.join('\n'));
  const [session] = await context.cookies();
  assert.equal(session.httpOnly, true);
  assert.equal(session.sameSite, 'Strict');
  assert.equal((await ask('/ui/login', form({ code: secret }))).status, 401);
  await page.click('text=Log out');
  await page.waitForSelector('text=Log in to Ringwell');
  assert.equal((await fetch(`${server.ui}/ui/`, { headers: { cookie: `${session.name}=${session.value}` }, redirect: 'manual' })).status, 303);
  await context.close();
});

test('a call is on its own page with its visitor, and on the page of its number', async () => {
  let calls = [];
  await until(async () => {
    ({ calls } = await (await get('calls.json')).json());
    calls = calls.filter((call) => call.provider_call_id === 'CA1');
    return calls.length === 1 && calls[0].attribution.outcome === 'allocated' && calls[0].state === 'ended';
  });
  const { page, context, complaints } = await open('number?number=2125550000', { javaScriptEnabled: false });
  await page.click(`text=${calls[0].id}`);
  assert.match(await page.textContent('.banner'), /The visitor is known, \d+ % sure/);
  const text = await page.textContent('main');
  for (const said of ['utm_source: spring', '+14155551234', 'answered', '58 s', 'the visitor was shown the number', 'event call.completed']) assert.ok(text.includes(said), `${said}: ${text}`);
  assert.ok(text.includes(HOSTILE));
  // The page says why a call is not attributed: many visitors see the overflow number.
  await ring('CA2', '+12125559999');
  await until(async () => (await (await get('calls.csv')).text()).includes('unknown: the number is an overflow number, which many visitors see'));
  assert.deepEqual(complaints, []);
  await context.close();
});

test('a new call appears on the open pages at once, with its progress', async () => {
  const { page, context, complaints } = await open('calls');
  const rows = () => page.$$eval('tbody tr', (all) => all.length);
  const before = await rows();
  await page.evaluate(() => { window.isTheSame = true; });
  await ring('CA3', '+12125552000');
  await page.waitForFunction((old) => document.querySelectorAll('tbody tr').length > old, before, { timeout: 15_000 });
  await page.waitForFunction(() => document.querySelector('tbody tr').textContent.includes('58 s'), null, { timeout: 15_000 });
  assert.equal(await page.evaluate(() => window.isTheSame), true, 'the page was not reloaded');
  // Its link leads to its own page, and its number is announced as the row's name.
  assert.equal(await page.$eval('tbody tr th', (cell) => cell.scope), 'row');
  await page.click('tbody tr:first-child th a');
  await page.waitForSelector('text=event call.completed');
  assert.deepEqual(complaints, []);
  await context.close();
});

/**
 * Six questions that a first-time user must be able to answer from the first page, with only links
 * and forms.
 */
const questions = {
  'which pool is too small, and by how much': async (page) => {
    await page.click('.findings >> text=See pools');
    await page.click('tbody th a');
    assert.match(await page.textContent('h1'), /Too small/);
    assert.match(await page.textContent('.banner'), /✖ Too small\. [\d,]+ more numbers would keep overflow below/);
  },
  'who had a number at ten': async (page) => {
    await page.click('nav >> text=Number');
    await page.fill('input[name=number]', '212-555-0000');
    await page.fill('input[name=at]', new Date().toISOString().replace(/\.\d+Z/, 'Z'));
    await page.click('main button');
    assert.match(await page.textContent('.banner'), /Held by one visitor since/);
    assert.match(await page.textContent('table'), /utm_source: spring/);
  },
  'why is this call unattributed': async (page) => {
    await page.click('nav >> text=Calls');
    await page.click('tr:has-text("unknown") th a');
    assert.match(await page.textContent('.banner'), /The visitor is unknown: the number is an overflow number, which many visitors see/);
  },
  'which endpoint fails': async (page) => {
    await page.click('nav >> text=Webhooks');
    assert.match(await page.textContent('h1'), /1 endpoint of 1 fail/);
    assert.match(await page.textContent('tr:has-text("example.invalid")'), /does not accept events/);
  },
  'which node is slow': async (page) => {
    await page.click('nav >> text=Cluster');
    assert.match(await page.textContent('h1'), /One server/);
    assert.match(await page.textContent('main'), /Shards of this server/);
  },
  'which numbers will run out tonight': async (page) => {
    // Visitors keep coming, because otherwise the expected load would fall again within seconds.
    await until(async () => {
      for (let n = 0; n < 30; n += 1) await allocate(server.api, 2, { visit: n });
      const { pools } = await (await get('pools.json?sort=trouble')).json();
      return pools[0].overflow_in_an_hour > 0.01;
    });
    await page.click('nav >> text=Pools');
    await page.selectOption('select[name=sort]', 'trouble');
    await page.click('main button');
    const heads = await page.$$eval('thead th', (all) => all.map((one) => one.textContent));
    const place = heads.indexOf('Overflow in an hour');
    assert.ok(place > 0, heads.join(', '));
    const shares = await page.$$eval('tbody tr', (rows, at) => rows.map((row) => row.cells[at].textContent), place);
    assert.notEqual(shares[0], '0 %', 'the first one runs out');
  },
};
for (const [question, answer] of Object.entries(questions)) {
  test(`a newcomer finds: ${question}`, async () => {
    const { page, context } = await open('', { javaScriptEnabled: false });
    await answer(page);
    await context.close();
  });
}

test('without a session no page can be seen or changed', async () => {
  const token = { authorization: `Bearer ${TOKEN}` };
  for (const path of ['', 'pools', 'pools/1', 'pools.json', 'pools.csv', 'number?number=2125550000', 'live/now', 'calls', 'calls.csv', 'webhooks', 'sites', 'sites/pk_shop', 'cluster']) {
    for (const headers of [{}, { cookie: 'rw_session=planted' }, { cookie: `rw_session=${'0'.repeat(64)}` }, { authorization: 'Bearer planted' }, token]) {
      const answer = await ask(`/ui/${path}`, { headers });
      assert.ok([303, 401].includes(answer.status), `${path} ${JSON.stringify(headers)}: ${answer.status}`);
      assert.doesNotMatch(answer.text, /2125550000|Spring sale/);
    }
  }
  for (const headers of [{}, { authorization: 'Bearer planted' }, { cookie }]) {
    assert.equal((await ask('/v1/ui/links', { method: 'POST', headers })).status, 401);
  }
});

test('forms from other sites, wrong names and planted sessions are refused', async () => {
  const host = new URL(server.ui).host;
  const foreign = [{ 'sec-fetch-site': 'cross-site' }, { 'sec-fetch-site': 'same-site' }, { 'sec-fetch-site': 'none' }, { origin: 'https://evil.example' }, { origin: 'null' }, { origin: `http://${host}.evil.example` }];
  for (const headers of foreign) {
    assert.equal((await ask('/ui/login', form({ token: TOKEN }, headers))).status, 403, JSON.stringify(headers));
    assert.equal((await ask('/ui/logout', form({ form: 'guessed' }, { cookie, ...headers }))).status, 403);
  }
  assert.equal((await ask('/ui/logout', form({ form: 'guessed' }, { cookie }))).status, 403);
  assert.equal((await ask('/ui/login', form({ token: TOKEN }, { origin: `http://${host}` }))).status, 303);
  // A page whose host name was made to resolve to this server.
  for (const name of ['evil.example', `evil.example:${host.split(':')[1]}`]) {
    assert.equal((await ask('/ui/', { headers: { host: name, cookie } })).status, 421);
  }
  // A session chosen by someone else is not used.
  const planted = 'a'.repeat(64);
  const answer = await ask('/ui/login', form({ token: TOKEN }, { cookie: `rw_session=${planted}` }));
  assert.ok(!answer.headers['set-cookie'][0].includes(planted));
  assert.equal((await ask('/ui/', { headers: { cookie: `rw_session=${planted}` } })).status, 303);
  // The user is still logged in.
  assert.equal((await get('')).status, 200);
});

test('no submitted text becomes markup', async () => {
  const texts = [HOSTILE, '"><svg onload=alert(1)>', "'-alert(1)-'", '\u202e\u2066evil', 'A'.repeat(10_000), '%ff%fe', '</title><script>alert(1)</script>', '\u0000', '../../etc/passwd'];
  for (const text of texts) {
    const value = text.startsWith('%') ? text : encodeURIComponent(text);
    for (const path of [`pools?q=${value}`, `pools?state=${value}`, `pools?sort=${value}&after=${value}`, `number?number=${value}`, `number?number=2125550000&at=${value}`, `pools/${value}`, value]) {
      const answer = await ask(`/ui/${path}`, { headers: { cookie } });
      assert.ok([200, 400, 404, 414, 431].includes(answer.status), `${answer.status} ${path.slice(0, 80)}`);
      assert.doesNotMatch(answer.text, /<script>|<svg onload|<img src=x/, path.slice(0, 80));
      if (answer.status === 431 || answer.status === 414) continue;
      assert.match(answer.headers['content-security-policy'], /default-src 'none'; script-src 'self'.*require-trusted-types-for 'script'/);
      assert.ok(answer.text.length < 100_000, `${answer.text.length} ${path.slice(0, 80)}`);
    }
  }
  const { page, context, complaints } = await open(`pools?q=${encodeURIComponent('script')}`);
  assert.ok((await page.textContent('table')).includes(HOSTILE));
  assert.deepEqual(complaints, []);
  await context.close();
});

test('a page loads at most 80 kB in total', async () => {
  const html = await (await get('')).text();
  const files = [...html.matchAll(/(?:src|href)="(assets\/[^"]+)"/g)].map((found) => found[1]);
  assert.ok(files.length >= 4, html);
  let bytes = 0;
  for (const file of files) {
    const answer = await ask(`/ui/${file.replaceAll('&amp;', '&')}`);
    assert.equal(answer.status, 200);
    assert.match(answer.headers['cache-control'], /immutable/);
    bytes += gzipSync(answer.text).length;
  }
  assert.ok(bytes <= 80_000, `${bytes}`);
});

test('it works below another path', async () => {
  for (const path of ['', 'pools', 'pools/1', 'login']) {
    const html = await (await get(path)).text();
    const addresses = [...html.matchAll(/(?:src|href|action|data-src|data-stream)="([^"#]*)"/g)].map((found) => found[1]);
    assert.ok(addresses.length > 3);
    assert.deepEqual(addresses.filter((one) => one.startsWith('/') || one.includes('://')), [], path);
  }
});
