// Pages with the snippet in a real Chromium, and the real server. RINGWELL_BIN sets the program,
// CHROMIUM the browser (/usr/bin/chromium).
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before } from 'node:test';

import { chromium } from 'playwright-core';

import { CHROMIUM } from '../../chromium.mjs';
export const AGENT = 'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36';
const OWN = '+18005550100';
const TOKEN = 'a-token-of-the-tests-0123456789';
const TOKEN_SHA256 = 'af302123040d812ad3584e5d695d360b9164fe78912d741368fb068de6202952';

export let browser;
let folder;
let pages;
export let origin;
let server;
export let api;

/** Starts the program with one site, whose pages come from `from`; returns its address. */
const serve = async (from) => {
  folder = mkdtempSync(join(tmpdir(), 'ringwell-snippet-'));
  const config = join(folder, 'ringwell.toml');
  const site = (key, consent, pool = 1) => `
[[site]]
key = "${key}"
origins = ["${from}"]
consent = "${consent}"
leases_per_minute = 1000000
[[site.swap]]
number = "${OWN}"
ring_pool = ${pool}
`;
  writeFileSync(config, `
data = "data"
listen = ["127.0.0.1:0"]
shards = 2
journal.segment_bytes = "4MiB"
drain_pause = "0s"
log.format = "json"
deadline = "1s"
management.token_sha256 = ["${TOKEN_SHA256}"]
[[ring_pool]]
id = 1
ring_pool_key = "key-of-the-shop"
lifetime = "30m"
numbers = ["2125550000-2125552999"]
overflow_number = "2125559999"
[[ring_pool]]
id = 2
ring_pool_key = "key-of-short-leases"
lifetime = "3s"
numbers = ["2125553000"]
overflow_number = "2125559998"
${site('pk_shop', 'off')}${site('pk_consent', 'required')}${site('pk_cookieless', 'cookieless')}${site('pk_short', 'off', 2)}`);
  server = spawn(process.env.RINGWELL_BIN, ['serve', '--config', config], { stdio: ['ignore', 'ignore', 'pipe'] });
  const said = [];
  for await (const line of createInterface({ input: server.stderr })) {
    said.push(line);
    const found = /127\.0\.0\.1:(\d+)/.exec(line);
    if (line.includes('"serving"') && found) return `http://${found[0]}`;
  }
  throw new Error(`the server has not started: ${said.join('\n')}`);
};

/** The contents of the next pages, by path. */
export const served = new Map();

before(async () => {
  pages = createServer((request, response) => {
    const { type = 'text/html; charset=utf-8', body, headers = {} } = served.get(new URL(request.url, origin).pathname) || { body: '' };
    response.writeHead(200, { 'content-type': type, ...headers });
    response.end(body);
  });
  await new Promise((done) => pages.listen(0, '127.0.0.1', done));
  origin = `http://127.0.0.1:${pages.address().port}`;
  api = await serve(origin);
  browser = await chromium.launch(CHROMIUM);
});

after(async () => {
  await browser?.close();
  pages?.close();
  server?.kill('SIGTERM');
  await new Promise((done) => (server ? server.once('exit', done) : done()));
  if (folder) rmSync(folder, { recursive: true, force: true });
});

/** Opens a page with this body as a new visitor. `errors` contains the errors on the console. */
export const visit = async (body, { tag = '', head = '', headers, path = '/', init, route, query = '' } = {}) => {
  const script = `<script async src="${api}/rw.js" data-site="pk_shop" ${tag}></script>`;
  served.set(path, { body: `<!doctype html><html lang="en"><head><title>Shop 800-555-0100</title>${head}${head.includes('rw.js') ? '' : script}</head><body>${body}</body></html>`, headers });
  const context = await browser.newContext({ userAgent: AGENT });
  const page = await context.newPage();
  const errors = [];
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('console', (message) => {
    // The browser itself reports failed requests, which are not page errors.
    if (message.type() === 'error' && !/Failed to load resource|net::ERR/.test(message.text())) errors.push(message.text());
  });
  if (init) await page.addInitScript(init);
  if (route) await page.route(`${api}/site/v1/**`, route);
  await page.goto(origin + path + query);
  return { page, context, errors };
};

/** Waits until the page shows a number of the pool; returns its ten digits. */
export const shown = async (page, selector = 'body') => {
  await page.waitForFunction((of) => /212\D*555\D*\d{4}/.test(document.querySelector(of).textContent), selector);
  return /212\D*555\D*\d{4}/.exec(await page.textContent(selector))[0].replace(/\D/g, '');
};

export const attribution = async (number) => {
  const answer = await fetch(`${api}/v1/attributions?number=${number}`, { headers: { authorization: `Bearer ${TOKEN}` } });
  return answer.json();
};
