// Gives a site's visitors their own numbers, put into the page by a Cloudflare worker in front of
// it.
//
// The worker's settings: RINGWELL (https://calls.example), SITE (pk_shop), EDGE_KEY (a secret), and
// the number on the pages as OWN_TEL (+18005550100). All spellings with its ten digits are found.
// If Ringwell does not return a number within 100 ms, the page keeps its own.

/** The values of all cookies with this name. */
const cookies = (request, name) =>
  [...(request.headers.get('Cookie') || '').matchAll(`(?:^|[;,]\\s*)${name}=([^;,]*)`)]
    .map(([, value]) => value);

/** Only pages need a number: browsers accept text/html for pages, but not for styles and images. */
const acceptsPage = (request) => /text\/html/i.test(request.headers.get('Accept') || '');

const ask = async (request, env) => {
  if (!acceptsPage(request)) return null;
  const consents = cookies(request, 'consent');
  const { pathname, search } = new URL(request.url);
  const headers = {
    'Ringwell-Edge-Key': env.EDGE_KEY,
    'X-Visitor': cookies(request, 'rw_v')[0] || '',
    'X-Real-IP': request.headers.get('CF-Connecting-IP') || '',
    'X-Original-URI': pathname + search,
    // If the site requires consent: the banner's cookie, which is "granted" if the visitor agreed.
    // If the browser sends several, each must be "granted".
    'Ringwell-Consent': consents.find((value) => value !== 'granted') ?? consents[0] ?? '',
  };
  for (const name of ['User-Agent', 'Sec-Fetch-Site', 'Sec-GPC', 'Sec-Purpose', 'Referer']) {
    if (request.headers.has(name)) headers[name] = request.headers.get(name);
  }
  try {
    const url = `${env.RINGWELL}/site/v1/number?site=${env.SITE}`;
    return await fetch(url, { headers, signal: AbortSignal.timeout(100) });
  } catch {
    return null;
  }
};

export default {
  async fetch(request, env) {
    const asked = new Request(request);
    if (acceptsPage(request)) {
      // A page must be requested as a whole, and anew each time.
      for (const name of ['Range', 'If-None-Match', 'If-Modified-Since']) asked.headers.delete(name);
    }
    const [page, answer] = await Promise.all([fetch(asked), ask(request, env)]);
    const number = answer?.headers.get('Ringwell-Number');
    const isPage = /text\/html/i.test(page.headers.get('Content-Type') || '');
    if (!number || !isPage) return page;
    const tel = answer.headers.get('Ringwell-Tel');
    const digits = env.OWN_TEL.slice(-10);
    const own = new RegExp(`(?<!\\d)\\(?${digits.split('').join('\\D{0,3}')}(?!\\d)`, 'g');
    let text = '';
    let isShown = true;
    const shown = new HTMLRewriter()
      .on('a[href^="tel:"]', {
        element: (link) => {
          if (link.getAttribute('href').replace(/\D/g, '').endsWith(digits)) {
            link.setAttribute('href', `tel:${tel}`);
          }
        },
      })
      .on('script, style, textarea', {
        element: (element) => {
          isShown = false;
          element.onEndTag(() => { isShown = true; });
        },
      })
      .onDocument({
        text: (chunk) => {
          if (!isShown) return;
          // Text may arrive in pieces, and a number may be split across two.
          text += chunk.text;
          if (!chunk.lastInTextNode) return void chunk.remove();
          chunk.replace(text.replace(own, number), { html: true });
          text = '';
        },
      })
      .transform(page);
    const answered = new Response(shown.body, shown);
    answered.headers.set('Cache-Control', 'private, no-store');
    const kept = answer.headers.get('Set-Cookie');
    if (kept) answered.headers.append('Set-Cookie', kept);
    return answered;
  },
};
