// The script of a page: requests the visitor's numbers once, shows them, and keeps them.
//
// <script async src="https://calls.example/rw.js" data-site="pk_…"></script>
// It never throws, hides nothing, and stores nothing before consent. Without an answer within 1.5 s
// the page keeps its own numbers.

import { follow } from './consent.js';
import { show as swapIn } from './page.js';

/** Longest wait for an answer, and the interval of keep-alives, in milliseconds. */
const DEADLINE = 1500;
const BEAT = 60000;
/** Parameters that identify the advertisement of the visit. */
const CLICKS = /^utm_|clk?id$|braid$/;
/** An event that only a person causes, or a program that imitates one. */
const SIGNS = ['pointerdown', 'pointermove', 'keydown', 'scroll'];

/** An address without parts that may identify a person. */
const bare = (url) => url.split(/[?#]/)[0];

const start = ({ dataset, src }) => {
  const { site, consent: mode, params = '', jsonld } = dataset;
  const early = window.ringwell || [];
  // The script is on the page twice.
  if (early.run) return;
  const name = `rw_${site}`;
  const listeners = [];
  let isAllowed = !mode;
  let isPerson;
  let lease = {};
  let shown = [];

  const isStored = () => isAllowed && !navigator.globalPrivacyControl;

  /** Keeps the lease for the visitor's next page. */
  const keep = () => {
    localStorage[name] = JSON.stringify(lease);
    document.cookie = `rw_v=${lease.visitor};Max-Age=${lease.ttl || 0};Path=/;SameSite=Lax;Secure`;
  };

  /** Shows `swaps`: in place of the page's own numbers, and of earlier ones. */
  const show = (swaps) => {
    const again = shown.map((old) => {
      const now = swaps.find(({ from }) => from === old.from);
      return now ? { ...now, from: old.to } : { ...old, from: old.to, to: old.from, formatted: old.from };
    });
    swapIn(swaps.concat(again).filter(({ from, to }) => from !== to), jsonld);
    shown = swaps;
    listeners.forEach((listener) => listener(swaps));
  };

  const send = async (path, also) => {
    // A string is sent as text/plain, which needs no preflight.
    const body = JSON.stringify({ site, visitor: lease.visitor, lease: lease.lease, ...also });
    try {
      const signal = AbortSignal.timeout(DEADLINE);
      const answer = await fetch(new URL('/site/v1/' + path, src), { method: 'POST', body, signal, keepalive: true });
      const given = await answer.json();
      show(given.swaps);
      lease = given;
      lease.until = Date.now() + lease.ttl * 1000;
      if (isStored()) keep();
    } catch { /* The page keeps what it shows. */ }
  };

  const run = () => {
    if ((mode === 'required' && !isAllowed) || document.prerendering) return;
    const query = [...new URLSearchParams(location.search)].filter(([key]) => CLICKS.test(key) || params.split(',').includes(key));
    send('numbers', isStored() && {
      params: Object.fromEntries(query),
      landing: bare(location.href),
      referrer: bare(document.referrer),
    });
  };

  const beat = () => lease.lease && !document.hidden && send('beat');

  const consent = (isGiven) => {
    if (isGiven === isAllowed) return;
    isAllowed = isGiven;
    if (!isGiven) {
      lease = {};
      show([]);
      try { keep(); } catch { /* Nothing was stored. */ }
    }
    run();
  };

  const onChange = (listener) => {
    listeners.push(listener);
    if (shown[0]) listener(shown);
  };

  const api = {
    run,
    consent,
    onChange,
    numbers: async (wanted) => {
      await new Promise((done) => {
        onChange(done);
        setTimeout(done, DEADLINE);
      });
      return wanted.map((from) => shown.find((swap) => swap.from === from) || { from, to: from, formatted: from });
    },
    push: (then) => then(api),
  };
  window.ringwell = api;
  early.forEach(api.push);

  const on = (what, then) => addEventListener(what, then, true);
  SIGNS.forEach((sign) => on(sign, ({ isTrusted }) => {
    isPerson = isPerson || (isTrusted && beat());
  }));
  on('click', ({ target }) => {
    const link = lease.lease && target.closest('[href^="tel:"]');
    if (link) send('tap', { tel: link.href });
  });
  setInterval(beat, BEAT);
  on('visibilitychange', () => (lease.until < Date.now() ? run() : beat()));
  on('pageshow', ({ persisted }) => persisted && run());
  on('prerenderingchange', run);

  // Frameworks first take over the page's own text: they must not find another text in its place.
  const begin = () => (window.requestIdleCallback || setTimeout)(() => {
    try {
      const old = isStored() && JSON.parse(localStorage[name]);
      if (old.until > Date.now()) show((lease = old).swaps);
    } catch { /* The first visit. */ }
    if (mode) follow(consent);
    run();
  }, { timeout: DEADLINE });
  // Deferred scripts run before that event, while the document already reports itself as
  // interactive.
  if (performance.timing.domContentLoadedEventStart) begin();
  else on('DOMContentLoaded', begin);
};

try {
  start(document.currentScript);
} catch { /* The page comes first. */ }
