// The demo's page: links to the dashboard, and two sliders.
(() => {
  'use strict';
  const at = (id) => document.getElementById(id);
  const { dashboard } = document.body.dataset;
  // The part after the # logs in once; from then on the browser has a session.
  const code = location.hash.slice(1);
  if (code) at('open').href = `${dashboard}/ui/login#${code}`;
  const name = () => {
    const digits = at('number').textContent.replace(/\D/g, '');
    at('who').href = `${dashboard}/ui/number?number=${digits}`;
  };
  new MutationObserver(name).observe(at('number'), { childList: true, characterData: true, subtree: true });
  name();
  const show = () => {
    at('load-shown').value = at('load').value;
    at('slow-shown').value = at('slow').value;
  };
  const send = async () => {
    show();
    const answer = await fetch('controls', { method: 'POST', body: `${at('load').value} ${at('slow').value}` });
    at('state').textContent = answer.ok ? '' : `The demo refuses: ${answer.status}`;
  };
  // Shows the webhooks that the receiver has verified, until the call is over.
  const receive = async (tries) => {
    const lines = await (await fetch('webhooks')).json();
    at('webhooks').replaceChildren(...lines.map(({ type, verified, visitor }) => {
      const line = document.createElement('li');
      line.textContent = `${type}: ${verified}${visitor === 'allocated' ? ', the visitor is known' : ''}`;
      return line;
    }));
    if (tries > 0 && !(lines[0] || {}).type?.endsWith('completed')) setTimeout(receive, 1000, tries - 1);
  };
  at('ring').addEventListener('click', async () => {
    const digits = at('number').textContent.replace(/\D/g, '');
    const answer = await fetch('ring', { method: 'POST', body: digits.length === 10 ? `+1${digits}` : `+${digits}` });
    at('state').textContent = answer.ok ? 'It rings. The call ends in seven seconds.' : `No answer: ${answer.status}`;
    if (answer.ok) setTimeout(receive, 1000, 30);
  });
  at('controls').addEventListener('input', send);
  show();
})();
