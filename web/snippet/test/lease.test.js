// The period during which a page shows and keeps a visitor's number, and the data that a refusal
// removes.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { AGENT, api, origin, shown, visit } from './pages.js';

/** Gives pk_short's number, the only one in its pool, to another visitor. */
const another = async () => {
  const headers = { origin, 'user-agent': AGENT, 'sec-fetch-site': 'cross-site' };
  const answer = await fetch(`${api}/site/v1/numbers`, { method: 'POST', body: '{"site":"pk_short"}', headers });
  return (await answer.json()).swaps[0].to;
};
/** Waits until the other visitor's number is free again. */
const isFree = () => new Promise((done) => setTimeout(done, 3500));
const SHORT = () => ({ head: `<script async src="${api}/rw.js" data-site="pk_short"></script>` });

test('a page that was offline for the lifetime shows its own number before another visitor has it', async () => {
  const { page, context, errors } = await visit('<p>800-555-0100</p><a href="tel:800-555-0100">us</a>', SHORT());
  assert.equal(await shown(page, 'p'), '2125553000');
  await context.setOffline(true);
  await page.waitForFunction(() => document.querySelector('p').textContent === '800-555-0100', null, { timeout: 6000 });
  assert.equal(await page.getAttribute('a', 'href'), 'tel:800-555-0100');
  await page.waitForTimeout(2500);
  assert.equal(await another(), '+12125553000');
  await context.setOffline(false);
  await page.waitForTimeout(1500);
  assert.notEqual((await page.textContent('p')).replace(/\D/g, ''), '2125553000');
  assert.deepEqual(errors, []);
  await context.close();
  await isFree();
});

for (const [what, answered, expected] of [
  ['requests the numbers anew', (route) => route.continue(), '212-555-9998'],
  ['shows its own if there are none', (route) => route.fulfill({ status: 204, headers: { 'access-control-allow-origin': '*' } }), '800-555-0100'],
  ['shows its own if there is no answer', (route) => route.abort(), '800-555-0100'],
]) {
  test(`after a keep-alive that comes too late, the page ${what}`, async () => {
    const asked = [];
    let isFirst = true;
    const route = (route) => {
      asked.push(route.request().url().split('/').pop());
      if (isFirst || asked.at(-1) === 'beat') route.continue();
      else answered(route);
      isFirst = false;
    };
    // After the first answer, the clock is an hour behind, so the page cannot detect the end of the
    // lease.
    const init = () => {
      const now = Date.now;
      window.delay = () => { Date.now = () => now() - 3600e3; };
    };
    const { page, context, errors } = await visit('<p>800-555-0100</p>', { ...SHORT(), route, init });
    assert.equal(await shown(page, 'p'), '2125553000');
    await page.evaluate(() => window.delay());
    await page.waitForTimeout(4000);
    assert.equal(await another(), '+12125553000');
    await page.mouse.move(30, 30);
    await page.mouse.move(40, 40);
    await page.waitForFunction((text) => document.querySelector('p').textContent === text, expected);
    await page.waitForTimeout(1500);
    assert.equal(await page.textContent('p'), expected);
    assert.deepEqual(asked, ['numbers', 'beat', 'numbers']);
    assert.deepEqual(errors, []);
    await context.close();
    await isFree();
  });
}

test('a page with an overflow number requests no further ones by itself', async () => {
  const asked = [];
  // The other visitor gets the number first, however long the page takes to load.
  const route = async (route) => {
    if (!asked.length) await another();
    asked.push(route.request().url().split('/').pop());
    return route.continue();
  };
  const { page, context, errors } = await visit('<p>800-555-0100</p>', { ...SHORT(), route });
  assert.equal(await shown(page, 'p'), '2125559998');
  await page.waitForTimeout(2500);
  assert.deepEqual(asked, ['numbers']);
  assert.equal(await shown(page, 'p'), '2125559998');
  assert.deepEqual(errors, []);
  await context.close();
});

/** Asserts that the browser stores nothing about the visitor. */
const isForgotten = async (page, context) => {
  assert.deepEqual((await context.cookies()).filter(({ value }) => value), []);
  assert.equal(await page.evaluate(() => localStorage.length), 0);
};
const CONSENT = () => ({ head: `<script async src="${api}/rw.js" data-site="pk_consent" data-consent="required"></script>` });

for (const [what, decide] of [
  ['by Consent Mode', () => {
    window.dataLayer = [];
    const gtag = function gtag() { window.dataLayer.push(arguments); };
    gtag('consent', 'default', { analytics_storage: 'granted' });
    gtag('consent', 'update', { analytics_storage: 'denied' });
  }],
  ['by the page', () => {
    window.ringwell = [(ringwell) => addEventListener('load', () => setTimeout(() => { ringwell.consent(true); ringwell.consent(false); }, 300))];
  }],
]) {
  test(`of several decisions ${what} the last one counts, before anything is sent`, async () => {
    const asked = [];
    const route = (route) => { asked.push(route.request().url()); return route.continue(); };
    const { page, context, errors } = await visit('<p>800-555-0100</p>', { ...CONSENT(), init: decide, route, query: '?gclid=click-1' });
    await page.waitForTimeout(1500);
    assert.deepEqual(asked, []);
    assert.equal(await page.textContent('p'), '800-555-0100');
    await isForgotten(page, context);
    assert.deepEqual(errors, []);
    await context.close();
  });
}

test('with data-consent="cookieless", a visitor gets a number, and nothing is stored before the visitor agrees', async () => {
  const bodies = [];
  const route = (route) => { bodies.push(JSON.parse(route.request().postData())); return route.continue(); };
  const head = `<script async src="${api}/rw.js" data-site="pk_cookieless" data-consent="cookieless"></script>`;
  const { page, context, errors } = await visit('<p>800-555-0100</p>', { head, route, query: '?gclid=click-1' });
  assert.match(await shown(page, 'p'), /^212555/);
  await page.mouse.move(30, 30);
  await page.mouse.move(40, 40);
  while (bodies.length < 2) await page.waitForTimeout(50);
  await page.waitForTimeout(500);
  assert.deepEqual(bodies.filter(({ params, landing }) => params || landing), []);
  await isForgotten(page, context);
  await page.evaluate(() => window.ringwell.consent(true));
  await page.waitForFunction(() => localStorage.rw_pk_cookieless);
  assert.deepEqual(errors, []);
  await context.close();
});

test('an answer that arrives after a refusal is ignored', async () => {
  let answer;
  const route = async (route) => {
    await new Promise((done) => { answer = done; });
    return route.continue();
  };
  const { page, context, errors } = await visit('<p>800-555-0100</p>', { ...CONSENT(), route });
  await page.waitForFunction(() => window.ringwell.run);
  const asked = page.waitForRequest((request) => request.url().endsWith('/numbers'));
  await page.evaluate(() => window.ringwell.consent(true));
  await asked;
  await page.evaluate(() => window.ringwell.consent(false));
  const answered = page.waitForResponse((response) => response.url().endsWith('/numbers'));
  answer();
  assert.equal((await answered).status(), 200);
  await page.waitForTimeout(500);
  assert.equal(await page.textContent('p'), '800-555-0100');
  await isForgotten(page, context);
  assert.deepEqual(errors, []);
  await context.close();
});

test('the number is kept for the next page with consent, and a refusal there removes it', async () => {
  const { page, context, errors } = await visit('<p>800-555-0100</p>', CONSENT());
  const agree = async () => {
    await page.waitForFunction(() => window.ringwell?.run);
    await page.waitForTimeout(300);
    await page.evaluate(() => window.ringwell.consent(true));
    return shown(page, 'p');
  };
  const number = await agree();
  await page.reload();
  assert.equal(await agree(), number);
  // There is no decision on this page yet.
  await page.reload();
  await page.waitForFunction(() => window.ringwell?.run);
  await page.waitForTimeout(500);
  assert.equal((await context.cookies())[0].name, 'rw_v');
  await page.evaluate(() => window.ringwell.consent(false));
  assert.equal(await page.textContent('p'), '800-555-0100');
  await isForgotten(page, context);
  assert.deepEqual(errors, []);
  await context.close();
});

for (const back of [true, false]) {
  test(`after a refusal on another page, ${back ? 'a page restored by the back button' : 'another tab'} stores and sends nothing`, async () => {
    const sent = [];
    const { page, context, errors } = await visit('<p>800-555-0100</p>', CONSENT());
    context.on('request', (request) => { if (request.url().includes('/site/v1/')) sent.push(request.url()); });
    const agreed = async () => {
      await page.waitForFunction(() => window.ringwell?.run);
      await page.waitForTimeout(300);
      await page.evaluate(() => window.ringwell.consent(true));
      await shown(page, 'p');
      await page.waitForFunction(() => localStorage.length);
    };
    await agreed();
    const other = back ? page : await context.newPage();
    await other.goto(`${origin}/?other`);
    await other.waitForFunction(() => window.ringwell?.run);
    await other.waitForTimeout(300);
    await other.evaluate(() => window.ringwell.consent(false));
    await isForgotten(other, context);
    sent.length = 0;
    if (back) await page.evaluate(() => history.back()).catch(() => {});
    else {
      await page.bringToFront();
      // A person's first sign causes a keep-alive.
      await page.mouse.move(30, 30);
      await page.evaluate(() => window.ringwell.run());
    }
    await page.waitForFunction(() => document.querySelector('p').textContent === '800-555-0100', null, { timeout: 5000 });
    await page.waitForTimeout(500);
    assert.deepEqual(sent, []);
    await isForgotten(page, context);
    // The visitor may agree again.
    await agreed();
    assert.deepEqual(errors, []);
    await context.close();
  });
}

test('what was kept is removed by the first page after its end, even without a decision', async () => {
  const { page, context, errors } = await visit('<p>800-555-0100</p>', CONSENT());
  await page.evaluate(() => { localStorage.rw_pk_consent = JSON.stringify({ visitor: 'v', swaps: [], until: Date.now() - 1 }); });
  await page.reload();
  await page.waitForFunction(() => window.ringwell?.run);
  await page.waitForFunction(() => !localStorage.length, null, { timeout: 3000 });
  assert.deepEqual(errors, []);
  await context.close();
});

test('without localStorage, the cookie is still set with consent, and removed by a refusal', async () => {
  const init = () => Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('', 'SecurityError'); } });
  const { page, context, errors } = await visit('<p>800-555-0100</p>', { ...CONSENT(), init });
  await page.waitForFunction(() => window.ringwell?.run);
  await page.waitForTimeout(300);
  await page.evaluate(() => window.ringwell.consent(true));
  await shown(page, 'p');
  assert.equal((await context.cookies())[0].name, 'rw_v');
  await page.evaluate(() => window.ringwell.consent(false));
  assert.equal(await page.textContent('p'), '800-555-0100');
  assert.deepEqual((await context.cookies()).filter(({ value }) => value), []);
  assert.deepEqual(errors, []);
  await context.close();
});
