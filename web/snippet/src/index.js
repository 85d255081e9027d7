// The page's script: requests the visitor's numbers once, shows them, and keeps them.
//
// <script async src="https://calls.example/rw.js" data-site="pk_…"></script>
// It never throws, hides nothing, and stores nothing before consent. If there is no answer within
// 1.5 s, the page keeps its own numbers.

import { follow } from './consent.js';
import { show as swapIn } from './page.js';

/** The maximum wait for an answer, and the interval of keep-alives, in milliseconds. */
const DEADLINE = 1500;
const BEAT = 60000;
/** The interval at which the end of the lease is checked, with a clock that also counts sleep. */
const LOOK = 500;
/** Parameters that identify the advertisement that led to the visit. */
const CLICKS = /clk?id$|braid$|^utm_/;
/** Events that are caused only by a person, or by a program that imitates one. */
const SIGNS = ['scroll', 'keydown', 'pointerdown', 'pointermove'];

/** An address without parts that may identify a person. */
const bare = (url) => url.split(/[?#]/)[0];

/** The swap of a number; if there is none, a swap that changes nothing. */
const find = (swaps, from) => ({ from, to: from, formatted: from, ...swaps.find((swap) => swap.from === from) });

const start = ({ src, dataset: { site, consent: mode, params = '', jsonld } }) => {
  const early = window.ringwell || [];
  // The script is on the page twice.
  if (early.run) return;
  const name = `rw_${site}`;
  const listeners = [];
  // Null means undecided.
  let isAllowed = !mode || null;
  let isPerson;
  let lease = { swaps: [] };
  /** The entry in `localStorage`, as this page has last written or read it. */
  let kept;

  const isStored = () => isAllowed && !navigator.globalPrivacyControl;

  /** Stores the lease for the visitor's next page. If it has no numbers, removes the cookie. */
  const keep = () => {
    // The browser may allow cookies, but not localStorage.
    document.cookie = `rw_v=${lease.visitor};Max-Age=${lease.ttl || 0};Path=/;SameSite=Lax;Secure`;
    kept = localStorage[name] = JSON.stringify(lease);
  };

  /** Shows the numbers of `next` in place of the page's own numbers and of earlier ones. */
  const take = (next) => {
    const swaps = next.swaps;
    const all = [...swaps, ...lease.swaps.map((old) => ({ ...old, ...find(swaps, old.from), from: old.to }))];
    lease = next;
    if (!all[0]) return;
    swapIn(all, jsonld);
    listeners.forEach((listener) => listener(swaps));
  };

  /** Puts the page's own numbers back until `until`, and keeps the visitor's id. */
  const end = (until) => take({ visitor: lease.visitor, until, swaps: [] });

  /**
   * Whether a decision or an answer has replaced `held`. If another page of the site has removed the
   * visitor's id, this page does the same.
   */
  const isOld = (held) => {
    if (kept && !localStorage[name]) consent(false);
    return held !== lease;
  };

  const send = async (path, tel) => {
    const held = lease;
    try {
      // Code that runs right after the visitor's decision may still change it.
      await 0;
      if (document.prerendering || (mode === 'required' && !isAllowed) || isOld(held)) return;
      const answer = await fetch(new URL('/site/v1/' + path, src), {
        method: 'POST',
        // A string is sent as text/plain, which needs no preflight.
        body: JSON.stringify({
          site,
          ...lease,
          swaps: undefined,
          ...(isStored() && {
            params: Object.fromEntries([...new URLSearchParams(location.search)].filter(([key]) => CLICKS.test(key) || params.split(',').includes(key))),
            landing: bare(location.href),
            referrer: bare(document.referrer),
          }),
          tel,
        }),
        keepalive: true,
        signal: AbortSignal.timeout(DEADLINE),
      });
      const given = answer.status !== 204 && await answer.json();
      if (isOld(held)) return;
      if (given.ttl) given.until = Date.now() + given.ttl * 1000 - DEADLINE;
      if (given) take(given);
      else end(lease.lease && 0);
      if (isStored()) keep();
    } catch { /* The page keeps what it shows. */ }
  };

  const run = () => send('numbers');

  /**
   * Extends the lease. If it has ended, requests numbers again, because another visitor may have
   * them now.
   */
  const beat = (isDue) => {
    if (document.hidden) return;
    if (lease.until < Date.now()) {
      end(Date.now() + BEAT / 2);
      run();
    } else return isDue && lease.lease && send('beat');
  };

  /** Shows the numbers of the visitor's earlier page, unless they have expired or consent is refused. */
  const recall = () => {
    try {
      if (isAllowed === false) keep();
      const old = JSON.parse(kept = localStorage[name]);
      if (!(old.until > Date.now())) kept = !delete localStorage[name];
      else if (isStored()) take(old);
    } catch { /* The first visit. */ }
  };

  const consent = (isGiven) => {
    if (isGiven === isAllowed) return;
    isAllowed = isGiven;
    // Because this is a new object, answers to earlier requests are ignored.
    take({ swaps: [], ...(isGiven && lease) });
    recall();
    run();
  };

  const onChange = (listener) => {
    listeners.push(listener);
    if (lease.swaps[0]) listener(lease.swaps);
  };

  const api = {
    run,
    consent,
    onChange,
    numbers: async (wanted) => {
      await new Promise((done) => setTimeout(done, DEADLINE, onChange(done)));
      return wanted.map((from) => find(lease.swaps, from));
    },
    push: (then) => then(api),
  };
  early.forEach((window.ringwell = api).push);

  const on = (what, then) => addEventListener(what, then, true);
  SIGNS.forEach((sign) => on(sign, (event) => {
    isPerson = isPerson || (event.isTrusted && beat(1));
  }));
  on('click', (event) => {
    const link = lease.lease && event.target.closest('[href^="tel:" i]');
    if (link) send('tap', link.href);
  });
  setInterval(beat, LOOK);
  setInterval(beat, BEAT, 1);
  on('visibilitychange', beat);
  on('pageshow', (event) => event.persisted && run());
  on('prerenderingchange', run);

  // Frameworks first hydrate the page's own text, and must not find another text in its place.
  const begin = () => (window.requestIdleCallback || setTimeout)(() => {
    recall();
    run();
    if (mode) follow(consent);
  }, { timeout: DEADLINE });
  // Deferred scripts run before that event, while the document already reports itself as
  // interactive.
  if (performance.timing.domContentLoadedEventStart) begin();
  else on('DOMContentLoaded', begin);
};

try {
  start(document.currentScript);
} catch { /* An error must not affect the page. */ }
