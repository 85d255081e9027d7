// Live figures, charts and local times. Every page can be read without this.
(() => {
  'use strict';
  const main = document.querySelector('main');
  const times = () => {
    for (const time of document.querySelectorAll('time[datetime]')) {
      const at = new Date(time.dateTime);
      if (!isNaN(at)) time.textContent = at.toLocaleString([], { dateStyle: 'medium', timeStyle: 'medium' });
    }
  };
  times();

  // A one-time link's secret follows the #, so it never reaches a log.
  const code = document.querySelector('input[name=code]');
  if (code && location.hash.length > 1) {
    code.value = location.hash.slice(1);
    history.replaceState(null, '', location.pathname);
    code.form.requestSubmit();
  }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const charts = [];
  const draw = async () => {
    for (const box of document.querySelectorAll('.chart')) {
      const answer = await fetch(box.dataset.src);
      if (!answer.ok) continue;
      const chart = (await answer.json())[box.dataset.key];
      if (!chart || chart.x.length < 2) continue;
      const width = Math.max(box.clientWidth, 240);
      const known = charts.find((one) => one.box === box);
      if (known) {
        known.plot.setData([chart.x, ...chart.y.map((line) => line.values)]);
        continue;
      }
      const lines = ['--link', '--red', '--amber', '--green', '--soft'];
      const dashes = [[], [6, 3], [2, 3], [10, 3, 2, 3], [1, 1]];
      const axis = { stroke: colour('--soft'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line') } };
      const plot = new uPlot({
        width, height: 220,
        scales: { x: { time: chart.time } },
        axes: [axis, { ...axis, size: 64 }],
        series: [{ label: chart.label }, ...chart.y.map((line, n) => ({ label: line.label, stroke: colour(lines[n]), dash: dashes[n], width: 2, points: { show: false } }))],
      }, [chart.x, ...chart.y.map((line) => line.values)], box);
      charts.push({ box, plot });
    }
  };
  if (window.uPlot) draw();
  addEventListener('resize', () => charts.forEach(({ box, plot }) => plot.setSize({ width: Math.max(box.clientWidth, 240), height: 220 })));

  // Rows appear and disappear, so the table's body is rendered again.
  const fill = (rows) => {
    const body = document.querySelector('table[data-rows] tbody');
    // Until now the page has shown an empty list.
    if (!body) return rows.length && location.reload();
    body.replaceChildren(...rows.map((row) => {
      const line = document.createElement('tr');
      line.append(...row.map(({ text, href, at, figure }, place) => {
        const cell = document.createElement(place ? 'td' : 'th');
        if (!place) cell.scope = 'row';
        if (figure) cell.className = 'n';
        const inner = document.createElement(href ? 'a' : at ? 'time' : 'bdi');
        if (href) inner.href = href;
        if (at) inner.dateTime = inner.title = at;
        inner.textContent = text;
        cell.append(inner);
        return cell;
      }));
      return line;
    }));
    times();
  };

  if (main && main.dataset.stream) {
    let spoken = 0;
    let drawn = Date.now();
    const stream = new EventSource(main.dataset.stream);
    stream.onmessage = (event) => {
      for (const [name, text] of Object.entries(JSON.parse(event.data))) {
        if (name === 'rows') {
          fill(JSON.parse(text));
          continue;
        }
        const place = document.querySelector(`[data-live="${CSS.escape(name)}"]`);
        if (!place || place.textContent === text) continue;
        // Screen readers are interrupted at most every five seconds.
        if (place.getAttribute('role') === 'status') {
          if (Date.now() - spoken < 5000) continue;
          spoken = Date.now();
        }
        place.textContent = text;
      }
      if (charts.length && Date.now() - drawn > 5000) { drawn = Date.now(); draw(); }
    };
    stream.addEventListener('end', () => { stream.close(); location.reload(); });
    addEventListener('pagehide', () => stream.close());
  }
})();
