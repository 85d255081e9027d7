// The snippet in a real Chromium, against the real server.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { buildSync } from 'esbuild';

import { AGENT, api, attribution, browser, origin, served, shown, visit } from './pages.js';

test('all forms of the number are swapped, in text, links and attributes, and nothing else', async () => {
  const { page, context, errors } = await visit(`
    <p id="plain">Call (800) 555-0100 or 800.555.0100.</p>
    <p id="split"><span>800</span>-<b>555</b>-<i>0100</i></p>
    <p id="indented"><span>(800)</span>
        <span>555-0100</span></p>
    <a id="capital" href="TEL:8005550100">us</a>
    <p id="narrow">(800)&nbsp;555&#8209;0100</p>
    <a id="link" href="tel:+18005550100" aria-label="Call 800-555-0100" title="800 555 0100">+1 800 555 0100</a>
    <a id="sms" href="sms:8005550100">Text us</a>
    <meta itemprop="telephone" content="+1-800-555-0100" id="meta">
    <span id="asked" data-rw-number="+18005550100">1-800-FLOWERS</span>
    <p id="other">98005550100 80055501001</p>
    <p id="skip" data-rw-skip>800-555-0100</p>
    <textarea id="area">800-555-0100</textarea>
    <div>800</div><div>555-0100</div>`);
  const number = await shown(page);
  const [area, office, line] = [number.slice(0, 3), number.slice(3, 6), number.slice(6)];
  const text = (id) => page.textContent(id);
  assert.equal(await text('#plain'), `Call (${area}) ${office}-${line} or ${area}.${office}.${line}.`);
  assert.equal(await text('#split'), `${area}-${office}-${line}`);
  assert.equal(await text('#split b'), office);
  assert.equal(await text('#narrow'), `(${area})\u00a0${office}\u2011${line}`);
  const attribute = (id, name) => page.getAttribute(id, name);
  assert.equal(await attribute('#link', 'href'), `tel:+1${number}`);
  assert.equal(await attribute('#link', 'aria-label'), `Call ${area}-${office}-${line}`);
  assert.equal(await attribute('#link', 'title'), `${area} ${office} ${line}`);
  assert.equal(await text('#link'), `+1 ${area} ${office} ${line}`);
  assert.equal(await attribute('#capital', 'href'), `TEL:${number}`);
  assert.match(await text('#indented'), new RegExp(`^\\(${area}\\)\\s+${office}-${line}$`));
  assert.equal(await attribute('#sms', 'href'), `sms:${number}`);
  assert.equal(await attribute('#meta', 'content'), `+1-${area}-${office}-${line}`);
  assert.equal(await text('#asked'), `(${area}) ${office}-${line}`);
  assert.equal(await text('#other'), '98005550100 80055501001');
  assert.equal(await text('#skip'), '800-555-0100');
  assert.equal(await page.inputValue('#area'), '800-555-0100');
  assert.deepEqual(errors, []);
  await context.close();
});

test('the visitor keeps the number from page to page, and the call is attributed to them', async () => {
  const { page, context, errors } = await visit('<p>800-555-0100</p>', { query: '?gclid=click-1&email=a@b' });
  const number = await shown(page);
  const beat = page.waitForResponse((response) => response.url().endsWith('/beat') && response.status() === 200);
  await page.mouse.move(30, 30);
  await page.mouse.down();
  await beat;
  await page.goto(`${origin}/`);
  assert.equal(await shown(page), number);
  const held = await attribution(number);
  assert.equal(held.parameters.gclid, 'click-1');
  assert.equal(held.parameters.email, undefined);
  assert.deepEqual(errors, []);
  await context.close();
});

test('after a thousand route changes the number is still right', async () => {
  const { page, context, errors } = await visit('<main></main>');
  await page.evaluate(() => { document.querySelector('main').textContent = 'Call 800-555-0100'; });
  const number = await shown(page);
  const wrong = await page.evaluate(async (number) => {
    let wrong = 0;
    for (let route = 0; route < 1000; route++) {
      history.pushState({}, '', `/route-${route}`);
      const main = document.querySelector('main');
      main.replaceChildren();
      const added = document.createElement('p');
      added.append('Page ', String(route), ': ', '(800) 555-0100');
      main.append(added);
      // The number is right before the next frame, unless a busy machine delays the work.
      const isRight = () => main.textContent.replace(/\D/g, '').endsWith(number);
      for (let wait = 0; wait < 5 && !isRight(); wait++) await new Promise((done) => setTimeout(done));
      if (!isRight()) wrong++;
    }
    return wrong;
  }, number);
  assert.equal(wrong, 0);
  assert.deepEqual(errors, []);
  await context.close();
});

const bundle = (source) => buildSync({
  stdin: { contents: source, resolveDir: new URL('..', import.meta.url).pathname, loader: 'jsx' },
  bundle: true,
  write: false,
  define: { 'process.env.NODE_ENV': '"development"' },
  jsx: 'automatic',
}).outputFiles[0].text;

test('React hydrates, renders again, and the number stays', async () => {
  const app = "import { useState } from 'react'; export const App = () => { const [n, set] = useState(0); return <main><p id='text'>Call {'800-555-0100'} now, {n}</p><button onClick={() => set(n + 1)}>more</button><a id='link' href='tel:+18005550100'>{n % 2 ? '800.555.0100' : '(800) 555-0100'}</a></main>; };";
  served.set('/react.js', { type: 'text/javascript', body: bundle(`${app} import { hydrateRoot } from 'react-dom/client'; hydrateRoot(document.getElementById('root'), <App />, { onRecoverableError: (e) => console.error(e) });`) });
  const html = '<div id="root"><main><p id="text">Call <!-- -->800-555-0100<!-- --> now, <!-- -->0</p><button>more</button><a id="link" href="tel:+18005550100">(800) 555-0100</a></main></div>';
  const { page, context, errors } = await visit(`${html}<script src="/react.js" defer></script>`);
  const number = await shown(page, '#text');
  for (let click = 1; click <= 5; click++) {
    await page.click('button');
    await page.waitForFunction((n) => document.querySelector('#text').textContent.endsWith(`now, ${n}`), click);
    assert.equal(await shown(page, '#link'), number);
    assert.equal(await shown(page, '#text'), number);
  }
  assert.deepEqual(errors, []);
  await context.close();
});

test('Vue hydrates, renders again, and the number stays', async () => {
  served.set('/vue.js', { type: 'text/javascript', body: bundle("import { createSSRApp, h, ref } from 'vue'; createSSRApp({ setup() { const n = ref(0); return () => h('main', [h('p', { id: 'text' }, `Call ${n.value % 2 ? '800.555.0100' : '(800) 555-0100'} now, ${n.value}`), h('button', { onClick: () => n.value++ }, 'more')]); } }).mount('#root');") });
  const html = '<div id="root"><main><p id="text">Call (800) 555-0100 now, 0</p><button>more</button></main></div>';
  const { page, context, errors } = await visit(`${html}<script src="/vue.js" defer></script>`);
  const number = await shown(page, '#text');
  for (let click = 1; click <= 5; click++) {
    await page.click('button');
    await page.waitForFunction((n) => document.querySelector('#text').textContent.endsWith(`now, ${n}`), click);
    assert.equal(await shown(page, '#text'), number);
  }
  assert.deepEqual(errors, []);
  await context.close();
});

test('a strict content policy with Trusted Types is respected', async () => {
  const policy = `default-src 'none'; script-src ${api}; connect-src ${api}; require-trusted-types-for 'script'`;
  const { page, context, errors } = await visit('<p>800-555-0100</p>', { headers: { 'content-security-policy': policy } });
  await shown(page);
  assert.deepEqual(errors, []);
  await context.close();
});

for (const [what, route] of [
  ['hangs', () => {}],
  ['fails', (route) => route.fulfill({ status: 500, body: 'no' })],
  ['is offline', (route) => route.abort()],
  ['answers nonsense', (route) => route.fulfill({ status: 200, headers: { 'access-control-allow-origin': '*' }, body: '{"swaps":7}' })],
]) {
  test(`the page keeps its own number while the server ${what}`, async () => {
    const { page, context, errors } = await visit('<p>800-555-0100</p>', { route });
    await page.waitForFunction(() => window.ringwell);
    const numbers = await page.evaluate(() => window.ringwell.numbers(['+18005550100']));
    assert.equal(numbers[0].to, '+18005550100');
    await page.waitForTimeout(300);
    assert.equal(await page.textContent('p'), '800-555-0100');
    assert.deepEqual(errors, []);
    await context.close();
  });
}

test('a blocked script does not affect the page', async () => {
  const { page, context, errors } = await visit('<p>800-555-0100</p>', { init: () => {}, head: `<script async src="http://127.0.0.1:1/rw.js" data-site="pk_shop"></script>` });
  assert.equal(await page.textContent('p'), '800-555-0100');
  assert.deepEqual(errors, []);
  await context.close();
});

test('without consent nothing is requested or stored; with it the number is shown; it can be withdrawn', async () => {
  const asked = [];
  const head = `<script async src="${api}/rw.js" data-site="pk_consent" data-consent="required"></script>`;
  const { page, context, errors } = await visit('<p>800-555-0100</p>', { head });
  page.on('request', (request) => request.url().includes('/site/v1/') && asked.push(request.url()));
  await page.waitForFunction(() => window.ringwell);
  await page.waitForTimeout(700);
  assert.deepEqual(asked, []);
  assert.deepEqual(await context.cookies(), []);
  await page.evaluate(() => { (window.dataLayer = window.dataLayer || []).push({ event: 'x' }, ['consent', 'update', { ad_storage: 'granted', analytics_storage: 'granted' }]); });
  await shown(page);
  assert.equal((await context.cookies())[0].name, 'rw_v');
  await page.evaluate(() => window.ringwell.consent(false));
  await page.waitForFunction(() => document.querySelector('p').textContent === '800-555-0100');
  assert.deepEqual((await context.cookies()).filter(({ value }) => value), []);
  assert.deepEqual(errors, []);
  await context.close();
});

test('JSON-LD is swapped if the tag requests it, and no other script is changed', async () => {
  const body = `<script type="application/ld+json" id="ld">{"@type":"Organization","telephone":"+1-800-555-0100"}</script>
    <script type="application/json" id="state">{"telephone":"800-555-0100"}</script>
    <script id="code">window.number = '800-555-0100';</script><p>800-555-0100</p>`;
  const text = (page, id) => page.evaluate((of) => document.querySelector(of).textContent, id);
  // Trusted Types restrict the text of every script, so pages with Trusted Types do not use
  // JSON-LD.
  const policy = `default-src 'none'; script-src ${api} 'unsafe-inline'; connect-src ${api}`;
  for (const tag of ['data-jsonld', '']) {
    const types = tag ? '' : "; require-trusted-types-for 'script'";
    const { page, context, errors } = await visit(body, { tag, headers: { 'content-security-policy': policy + types } });
    const number = await shown(page, 'p');
    const [area, office, line] = [number.slice(0, 3), number.slice(3, 6), number.slice(6)];
    const wanted = tag ? `+1-${area}-${office}-${line}` : '+1-800-555-0100';
    await page.waitForFunction((to) => JSON.parse(document.querySelector('#ld').textContent).telephone === to, wanted);
    assert.equal(await text(page, '#state'), '{"telephone":"800-555-0100"}');
    assert.equal(await text(page, '#code'), "window.number = '800-555-0100';");
    if (tag) {
      // Numbers in elements that a framework adds later are also swapped.
      await page.evaluate(() => {
        const added = document.createElement('script');
        added.type = 'application/ld+json';
        added.id = 'late';
        added.append('{"telephone":"(800) 555-0100"}');
        document.head.append(added);
      });
      await page.waitForFunction((to) => JSON.parse(document.querySelector('#late').textContent).telephone === to, `(${area}) ${office}-${line}`);
    }
    assert.deepEqual(errors, []);
    await context.close();
  }
});

test('the TCF is followed: purposes 1 and 7, given and withdrawn', async () => {
  const init = () => {
    window.__tcfapi = (command, version, listener) => {
      window.decide = (eventStatus, consents) => listener({ eventStatus, purpose: { consents } }, true);
      window.listened = [command, version];
      listener(null, false);
      window.decide('cmpuishown', {});
    };
  };
  const head = `<script async src="${api}/rw.js" data-site="pk_consent" data-consent="required"></script>`;
  const { page, context, errors } = await visit('<p>800-555-0100</p>', { head, init });
  const asked = [];
  page.on('request', (request) => request.url().includes('/site/v1/') && asked.push(request.url()));
  await page.waitForFunction(() => window.listened);
  assert.deepEqual(await page.evaluate(() => window.listened), ['addEventListener', 2]);
  await page.evaluate(() => window.decide('useractioncomplete', { 1: true, 7: false }));
  await page.waitForTimeout(300);
  assert.deepEqual([asked, await context.cookies()], [[], []]);
  await page.evaluate(() => window.decide('useractioncomplete', { 1: true, 7: true }));
  await shown(page, 'p');
  assert.equal((await context.cookies())[0].name, 'rw_v');
  await page.evaluate(() => window.decide('tcloaded', { 1: false, 7: true }));
  await page.waitForFunction(() => document.querySelector('p').textContent === '800-555-0100');
  assert.deepEqual((await context.cookies()).filter(({ value }) => value), []);
  assert.deepEqual(errors, []);
  await context.close();
});

test('with Global Privacy Control a number is shown and nothing is stored, regardless of consent', async () => {
  const init = () => Object.defineProperty(Navigator.prototype, 'globalPrivacyControl', { get: () => true });
  const bodies = [];
  const route = (route) => {
    bodies.push(JSON.parse(route.request().postData()));
    return route.continue();
  };
  const { page, context, errors } = await visit('<p>800-555-0100</p>', { init, route, query: '?gclid=click-1' });
  await shown(page, 'p');
  assert.deepEqual(bodies.map((body) => Object.keys(body)), [['site']]);
  assert.deepEqual(await context.cookies(), []);
  assert.equal(await page.evaluate(() => localStorage.length), 0);
  assert.deepEqual(errors, []);
  await context.close();
  const head = `<script async src="${api}/rw.js" data-site="pk_consent" data-consent="required"></script>`;
  const strict = await visit('<p>800-555-0100</p>', { head, init });
  await strict.page.waitForFunction(() => window.ringwell);
  const refused = strict.page.waitForResponse((response) => response.url().endsWith('/numbers'));
  await strict.page.evaluate(() => window.ringwell.consent(true));
  assert.equal((await refused).status(), 204);
  assert.equal(await strict.page.textContent('p'), '800-555-0100');
  assert.deepEqual([strict.errors, await strict.context.cookies()], [[], []]);
  await strict.context.close();
});

test('a background tab sends no keep-alive, and sends one as soon as it is visible', async () => {
  const init = () => {
    let isHidden = false;
    Object.defineProperty(document, 'hidden', { get: () => isHidden });
    window.hide = (is) => { isHidden = is; document.dispatchEvent(new Event('visibilitychange', { bubbles: true })); };
    const every = window.setInterval;
    // Makes each of the script's minutes last 0.1 s.
    window.setInterval = (then, time, ...rest) => every(then, time === 60000 ? 100 : time, ...rest);
  };
  const { page, context, errors } = await visit('<p>800-555-0100</p>', { init });
  const number = await shown(page);
  const asked = [];
  page.on('request', (request) => request.url().includes('/site/v1/') && asked.push(request.url().split('/').pop()));
  await page.waitForFunction(() => performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('/beat')).length > 1);
  await page.evaluate(() => window.hide(true));
  await page.waitForTimeout(300);
  asked.length = 0;
  await page.waitForTimeout(1000);
  assert.deepEqual(asked, []);
  // The next minute has not ended yet.
  await page.evaluate(() => { window.setInterval = () => {}; window.hide(false); });
  await page.waitForTimeout(50);
  assert.equal(asked[0], 'beat');
  // The lease has expired in the meantime: the page requests a number again.
  await page.evaluate(() => window.hide(true));
  await page.waitForTimeout(300);
  asked.length = 0;
  await page.evaluate(() => {
    const now = Date.now;
    Date.now = () => now() + 3600e3;
    window.hide(false);
  });
  await page.waitForTimeout(50);
  assert.equal(asked[0], 'numbers');
  assert.equal(await shown(page), number);
  assert.deepEqual(errors, []);
  await context.close();
});

test('run requests numbers again, and stores the parameters of a route only with a new number', async () => {
  let isAway = true;
  const route = (route) => (isAway ? route.abort() : route.continue());
  const { page, context, errors } = await visit('<p>800-555-0100</p>', { route });
  await page.waitForFunction(() => window.ringwell.run);
  await page.waitForTimeout(300);
  assert.equal(await page.textContent('p'), '800-555-0100');
  isAway = false;
  const run = async (query) => {
    const asked = page.waitForResponse((response) => response.url().endsWith('/numbers'));
    await page.evaluate((to) => { history.pushState({}, '', `/offer${to}`); window.ringwell.run(); }, query);
    return (await asked).json();
  };
  await run('?gclid=click-2');
  const number = await shown(page, 'p');
  assert.equal((await attribution(number)).parameters.gclid, 'click-2');
  // A visitor with a number keeps it, with the parameters of the first visit.
  assert.equal((await run('?gclid=click-3')).swaps[0].to, `+1${number}`);
  assert.equal((await attribution(number)).parameters.gclid, 'click-2');
  assert.deepEqual(errors, []);
  await context.close();
});

test('onChange reports numbers that exist, appear and disappear', async () => {
  const init = () => {
    window.heard = [];
    window.ringwell = [(ringwell) => ringwell.onChange((swaps) => window.heard.push(['early', ...swaps.map(({ to }) => to)]))];
  };
  const head = `<script async src="${api}/rw.js" data-site="pk_consent" data-consent="required"></script>`;
  const { page, context, errors } = await visit('<p>800-555-0100</p>', { head, init });
  await page.waitForFunction(() => window.ringwell.run);
  assert.deepEqual(await page.evaluate(() => window.heard), []);
  await page.evaluate(() => window.ringwell.consent(true));
  const to = `+1${await shown(page, 'p')}`;
  assert.deepEqual(await page.evaluate(() => window.heard), [['early', to]]);
  await page.evaluate(() => window.ringwell.onChange((swaps) => window.heard.push(['late', ...swaps.map(({ to }) => to)])));
  await page.evaluate(() => window.ringwell.consent(false));
  assert.deepEqual(await page.evaluate(() => window.heard), [['early', to], ['late', to], ['early'], ['late']]);
  assert.deepEqual(errors, []);
  await context.close();
});

test('a prerendered page requests numbers when it is shown', async () => {
  const init = () => {
    let isPrerendering = true;
    Object.defineProperty(document, 'prerendering', { get: () => isPrerendering });
    window.activate = () => { isPrerendering = false; document.dispatchEvent(new Event('prerenderingchange', { bubbles: true })); };
  };
  const { page, context } = await visit('<p>800-555-0100</p>', { init });
  await page.waitForFunction(() => window.ringwell);
  await page.waitForTimeout(700);
  assert.equal(await page.textContent('p'), '800-555-0100');
  await page.evaluate(() => window.activate());
  await shown(page);
  await context.close();
});

test('a page restored from the cache of the browser shows its number', async () => {
  const { page, context, errors } = await visit('<p>800-555-0100</p>');
  const number = await shown(page);
  served.set('/next', { body: '<!doctype html><title>next</title>' });
  await page.evaluate(() => addEventListener('pageshow', ({ persisted }) => { window.cameBack = persisted; }));
  await page.goto(`${origin}/next`);
  await page.evaluate(() => history.back()).catch(() => {});
  assert.equal(await shown(page), number);
  assert.equal(await page.evaluate(() => window.cameBack), true);
  assert.deepEqual(errors, []);
  await context.close();
});

test('a script that restores its own number wins in the end', async () => {
  const { page, context, errors } = await visit('<p>800-555-0100</p>');
  await shown(page);
  const writes = await page.evaluate(async () => {
    const node = document.querySelector('p').firstChild;
    let writes = 0;
    new MutationObserver(() => {
      if (node.data !== '800-555-0100' && writes < 1000) { writes++; node.data = '800-555-0100'; }
    }).observe(node, { characterData: true });
    node.data = '800-555-0100';
    await new Promise((done) => setTimeout(done, 500));
    return writes;
  });
  assert.ok(writes > 2 && writes <= 25, `${writes}`);
  assert.deepEqual(errors, []);
  await context.close();
});

/**
 * Runs `action` on the page. Returns the longest processor time, in milliseconds, of one piece of
 * the page's scripts.
 */
const longest = async (page, action) => {
  const session = await browser.newBrowserCDPSession();
  const pieces = [];
  session.on('Tracing.dataCollected', ({ value }) => pieces.push(...value));
  await session.send('Tracing.start', { transferMode: 'ReportEvents', traceConfig: { includedCategories: ['devtools.timeline', 'v8.execute'] } });
  await action();
  const ended = new Promise((done) => session.once('Tracing.tracingComplete', done));
  await session.send('Tracing.end');
  await ended;
  await session.detach();
  const isOurs = ({ name, args }) => (name === 'FunctionCall' && args.data?.url?.endsWith('/rw.js')) || name === 'RunMicrotasks';
  const times = pieces.filter((piece) => piece.tdur && isOurs(piece)).map(({ tdur }) => tdur / 1000);
  assert.ok(times.length > 2, `there were ${times.length} pieces`);
  return Math.max(...times);
};

test('30,000 text nodes: every number swapped in pieces of less than 50 ms at a quarter of the speed, no layout shift', async () => {
  // Most texts have no digit, because skipping a text also takes time.
  const text = (row) => (row > 29000 ? (row % 50 ? `row ${row}` : '800-555-0100') : 'a row of words');
  const rows = Array.from({ length: 30000 }, (_, row) => `<p><span>${text(row)}</span></p>`).join('');
  const init = () => {
    window.shift = 0;
    new PerformanceObserver((list) => list.getEntries().forEach(({ value }) => (window.shift += value))).observe({ type: 'layout-shift', buffered: true });
  };
  const swap = async () => {
    const { page, context, errors } = await visit(`<div style="font-variant-numeric:tabular-nums">${rows}</div>`, { init, tag: 'data-consent="required" data-site="pk_consent"' });
    // The page has already been laid out; the measurement begins with the consent.
    await page.waitForLoadState('load');
    await page.waitForTimeout(1000);
    await page.evaluate(() => { window.shift = 0; });
    const most = await longest(page, async () => {
      await page.evaluate(() => window.ringwell.consent(true));
      const isSwapped = () => !document.querySelector('div').textContent.includes('800-555-0100');
      await page.waitForFunction(isSwapped, null, { timeout: 120000, polling: 500 });
    });
    assert.equal(await page.evaluate(() => window.shift), 0);
    assert.deepEqual(errors, []);
    await context.close();
    return most;
  };
  // Measures processor time, not elapsed time, because other programs run too. Uses the best of
  // five pages, because a shared processor is slower at times.
  let most = Infinity;
  for (let page = 0; page < 5 && 4 * most >= 50; page += 1) {
    most = Math.min(most, await swap());
    console.log(`# the longest piece took ${most.toFixed(1)} ms`);
  }
  assert.ok(4 * most < 50, `${most} ms`);
});

test('if a part of the page is removed during the search, the rest is still swapped', async () => {
  const rows = Array.from({ length: 20000 }, (_, row) => `<p>row ${row}</p>`).join('');
  const { page, context, errors } = await visit(`<main>${rows}</main><p id="last">800-555-0100</p>`, { tag: 'data-consent="required" data-site="pk_consent"' });
  await page.waitForLoadState('load');
  await page.evaluate(() => {
    // Removes `main` in the first pause of the search, wherever that pause occurs.
    const later = window.setTimeout;
    window.setTimeout = (then, ...rest) => {
      document.querySelector('main')?.remove();
      return later(then, ...rest);
    };
    window.ringwell.consent(true);
  });
  await shown(page, '#last');
  assert.equal(await page.evaluate(() => document.querySelector('main')), null);
  assert.deepEqual(errors, []);
  await context.close();
});

test('1,000 visitors get 1,000 numbers, and each call is attributed to its visitor', async () => {
  const numbers = new Map();
  for (let visitor = 0; visitor < 1000; visitor++) {
    const body = JSON.stringify({ site: 'pk_shop', params: { gclid: `v${visitor}` } });
    const headers = { origin, 'user-agent': AGENT, 'sec-fetch-site': 'cross-site' };
    const answer = await (await fetch(`${api}/site/v1/numbers`, { method: 'POST', body, headers })).json();
    const number = answer.swaps[0].to.slice(2);
    assert.ok(answer.lease && !numbers.has(number), `${visitor}: ${JSON.stringify(answer)}`);
    numbers.set(number, `v${visitor}`);
  }
  for (const [number, visitor] of numbers) {
    assert.equal((await attribution(number)).parameters.gclid, visitor);
  }
});
