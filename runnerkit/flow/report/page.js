'use strict';
const DATA = JSON.parse(document.getElementById('data').textContent);
const MARGIN = {left: 52, right: 10, top: 28, bottom: 34}, HEIGHT = 212;  // with a row for labels above and below the curves
const GLYPHS = {best: '★', resume: '↻', end: '■', rate: '↓', nan: '✕'};
const $ = (id) => document.getElementById(id);
const COMPACT = new Intl.NumberFormat('en', {notation: 'compact', maximumFractionDigits: 2});
const many = DATA.several;
const view = {axis: 'step', smooth: 0, log: false, at: null, hidden: new Set()};
const charts = [];
const legend = document.querySelector('input[data-run]');  // names the runs once, for all charts

const svg = (...what) => add('http://www.w3.org/2000/svg', ...what);
const html = (...what) => add('http://www.w3.org/1999/xhtml', ...what);

function add(space, kind, attributes, parent, text) {
  const node = document.createElementNS(space, kind);
  for (const name in attributes) node.setAttribute(name, attributes[name]);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

// --- numbers ----------------------------------------------------------------

function short(value) {
  if (value === null || value === undefined) return '–';
  const size = Math.abs(value);
  if (size >= 1e5 && size < 1e12) return COMPACT.format(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e12)) return value.toExponential(2).replace(/\.?0*e\+?/, 'e');
  if (Number.isInteger(value)) return value.toLocaleString('en');
  return String(Number(value.toPrecision(4)));
}

function ticksOf(low, high, count) {
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && found.length < 50; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

function decades(low, high) {
  const found = [];
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  const stride = Math.max(1, Math.ceil((last - first + 1) / 6));
  for (let i = first; i <= last; i += stride) found.push(10 ** i);
  return found.length > 1 ? found : ticksOf(low, high, 4).filter((each) => each > 0);
}

function between(xs, ys, x) {  // linear interpolation
  let low = 0, high = xs.length - 1;
  if (high < 0) return 0;
  if (x <= xs[0]) return xs[0] > 0 ? ys[0] * x / xs[0] : ys[0];
  if (x >= xs[high]) return ys[high];
  while (high - low > 1) { const middle = (low + high) >> 1; if (xs[middle] <= x) low = middle; else high = middle; }
  return ys[low] + (ys[high] - ys[low]) * (x - xs[low]) / (xs[high] - xs[low] || 1);
}

const longest = Math.max(0, ...DATA.runs.map((run) => run.clock[1].at(-1) || 0));
const [unit, seconds] = longest > 7200 ? ['hours', 3600] : longest > 180 ? ['minutes', 60] : ['seconds', 1];
const AXES = {
  step: ['iterations', (run, step) => step],
  epoch: ['epochs', (run, step) => step / run.epoch_length],
  time: [unit, (run, step) => between(run.clock[0], run.clock[1], step) / seconds],
};
const place = (series, step) => AXES[view.axis][1](DATA.runs[series.run], step);

function smoothed(values) {
  if (!view.smooth) return values;
  let sum = 0, weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = view.smooth * sum + (1 - view.smooth) * value;
    weight = view.smooth * weight + 1 - view.smooth;
    return sum / weight;
  });
}

function limitsOf(values, focus) {  // the first tenth may take a third of the height, so that it does not squash the rest
  const early = [], later = [];
  for (const list of values) {
    const known = list.filter((value) => value !== null && (!view.log || value > 0));
    const first = focus && known.length > 9 ? Math.ceil(known.length / 10) : 0;
    early.push(...known.slice(0, first));
    later.push(...known.slice(first));
  }
  if (!later.length) return null;
  let low = Math.min(...later), high = Math.max(...later);
  if (view.log) return [Math.min(low, ...early), Math.max(high, ...early)].map((value, i) => value * (i ? 1.15 : 0.87));
  const room = (high - low) / 2;
  if (early.length) { low = Math.max(Math.min(low, ...early), low - room); high = Math.min(Math.max(high, ...early), high + room); }
  const margin = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low - margin, high + margin];
}

const edges = ({low, high}) => (low && !view.smooth ? [[quantile(low, 0.03)], [quantile(high, 0.97)]] : []);
const quantile = (list, part) => { const sorted = list.filter((each) => each !== null).sort((a, b) => a - b); return sorted[Math.floor(part * (sorted.length - 1))] ?? null; };

// --- charts -----------------------------------------------------------------

function colour(series) {
  if (series.colour) return `var(${series.colour})`;
  const number = many ? series.run : ['train', 'val'].includes(series.mode) && !series.label ? Number(series.mode === 'val') : series.hue;
  return `var(--c${number % 8})`;
}

function labelOf(series) {
  return (many ? DATA.runs[series.run].name : series.mode) + series.suffix;
}

function addChart(panel, parent) {
  const figure = html('figure', {}, parent), caption = html('figcaption', {}, figure);
  html('b', {}, caption, panel.title);
  const chart = {panel, figure, drawing: svg('svg', {tabindex: 0, role: 'img'}, figure), keys: []};
  panel.series.forEach((series, i) => {
    series.hue = i + 2; series.suffix = series.label ? ` ${series.label}` : '';
    series.isSide = series.kind === 'thin';  // without a key
    const key = html('span', {class: 'key'}, series.isSide ? undefined : caption);
    html('i', {}, key).style.background = colour(series);
    key.append(legend ? `${series.suffix} ` : `${labelOf(series)} `);
    if (legend) key.title = labelOf(series);
    chart.keys.push([key, html('b', {}, key)]);
  });
  chart.drawing.addEventListener('pointermove', (event) => follow(chart, event));
  chart.drawing.addEventListener('pointerdown', (event) => follow(chart, event));
  chart.drawing.addEventListener('pointerleave', () => moveTo(null));
  chart.drawing.addEventListener('blur', () => moveTo(null));
  chart.drawing.addEventListener('keydown', (event) => step(chart, event));
  charts.push(chart);
}

function draw(chart) {
  const {drawing, panel} = chart, width = Math.max(220, Math.floor(chart.figure.clientWidth - 26));
  drawing.replaceChildren();
  drawing.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
  const shown = panel.series.filter((series) => !view.hidden.has(series.run));
  chart.lines = shown.map((series) => ({
    series, x: series.x.map((each) => place(series, each)), y: ['lr', 'momentum'].includes(panel.title) ? series.y : smoothed(series.y),
  }));
  const limits = limitsOf(chart.lines.flatMap((line) => [line.y, ...edges(line.series)]), panel.section === 'scores');
  const last = shown.filter((series) => !series.isSide).map((series) => `${labelOf(series)} ${short(series.last)}${series.bad.length ? ', not always finite' : ''}`);
  drawing.setAttribute('aria-label', `${panel.title}: last values ${last.join(', ')}. Arrow keys move the cursor.`);
  const [x0, x1] = view.range;
  const [y0, y1] = limits || [0, 1];
  const f = (value) => (view.log ? Math.log10(value) : value);
  chart.X = (x) => MARGIN.left + (x - x0) / (x1 - x0 || 1) * (width - MARGIN.left - MARGIN.right);
  chart.Y = (y) => HEIGHT - MARGIN.bottom - (f(y) - f(y0)) / (f(y1) - f(y0) || 1) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  chart.back = (pixel) => x0 + (pixel * width / drawing.getBoundingClientRect().width - MARGIN.left) / (width - MARGIN.left - MARGIN.right) * (x1 - x0);
  for (const tick of limits ? (view.log ? decades(y0, y1) : ticksOf(y0, y1, 4)) : []) {
    const y = chart.Y(tick);
    svg('line', {class: 'grid', x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y}, drawing);
    svg('text', {x: MARGIN.left - 6, y: y + 3.5, 'text-anchor': 'end'}, drawing, short(tick));
  }
  for (const tick of ticksOf(x0, x1, Math.max(2, width / 75))) {
    svg('text', {x: chart.X(tick), y: HEIGHT - 6, 'text-anchor': 'middle'}, drawing, short(tick));
  }
  const id = `clip${charts.indexOf(chart)}`, clip = svg('clipPath', {id}, drawing);
  svg('rect', {x: MARGIN.left - 5, y: MARGIN.top - 4, width: width - MARGIN.left - MARGIN.right + 10, height: HEIGHT - MARGIN.top - MARGIN.bottom + 6}, clip);
  if (!many) drawMarks(chart);
  const inside = svg('g', {'clip-path': `url(#${id})`}, drawing);
  for (const line of chart.lines) drawLine(chart, line, inside);
  chart.cuts = [];
  if (limits) chart.lines.filter((line) => !line.series.isSide).forEach((line) => drawCut(chart, line, y0, y1));
  if (!limits) svg('text', {x: width / 2, y: HEIGHT / 2, 'text-anchor': 'middle', class: 'nan'}, drawing, view.log ? 'no positive value' : 'no finite value');
  chart.over = svg('g', {}, drawing);
}

function drawLine(chart, {series, x, y}, parent) {
  const isSide = series.isSide, stroke = colour(series), ok = (value) => value !== null && (!view.log || value > 0);
  const path = (values) => {
    let text = '', pen = 'M';
    values.forEach((value, i) => { if (ok(value)) { text += `${pen}${chart.X(x[i]).toFixed(1)} ${chart.Y(value).toFixed(1)}`; pen = 'L'; } else pen = 'M'; });
    return text;
  };
  if (series.low && !isSide) {
    const known = x.map((_, i) => i).filter((i) => ok(series.low[i]) && ok(series.high[i]));
    const there = known.map((i) => `${chart.X(x[i]).toFixed(1)} ${chart.Y(series.high[i]).toFixed(1)}`);
    const back = known.reverse().map((i) => `${chart.X(x[i]).toFixed(1)} ${chart.Y(series.low[i]).toFixed(1)}`);
    if (there.length) svg('path', {class: 'band', d: `M${[...there, ...back].join('L')}Z`}, parent).style.fill = stroke;
  } else if (view.smooth && !isSide) {
    const raw = svg('path', {class: 'line', d: path(series.y)}, parent);
    raw.style.stroke = stroke; raw.style.opacity = 0.28;
  }
  const main = svg('path', {class: 'line', d: path(y)}, parent);
  main.style.stroke = stroke;
  if (isSide) { main.style.strokeWidth = 1; main.style.opacity = 0.55; }
  if (series.kind === 'best') main.style.strokeWidth = 2.5;
  const points = y.map((_, i) => i).filter((i) => ok(y[i]));
  if (points.length <= (isSide ? 1 : 24)) {
    for (const i of points) svg('circle', {cx: chart.X(x[i]), cy: chart.Y(y[i]), r: points.length === 1 ? 3.5 : 2}, parent).style.fill = stroke;
  }
}

function drawCut(chart, {series, x, y}, low, high) {  // where a line leaves the chart, and how far
  const {low: least, high: most} = view.smooth || !series.low ? {low: y, high: y} : series;
  for (const [values, beyond, glyph, at] of [[most, (value) => value - high, '▲', MARGIN.top - 6], [least, (value) => low - value, '▼', HEIGHT - MARGIN.bottom + 13]]) {
    const out = x.map((_, i) => i).filter((i) => values[i] !== null && (!view.log || values[i] > 0) && beyond(values[i]) > 0);
    if (!out.length) continue;
    const i = out.reduce((a, b) => (beyond(values[b]) > beyond(values[a]) ? b : a)), isLeft = chart.X(x[i]) < 120;
    const isFree = chart.cuts.every(([row, column]) => row !== at || Math.abs(column - chart.X(x[i])) > 120);
    chart.cuts.push([at, chart.X(x[i])]);
    const number = isFree ? short(values[i]) : '';  // else only the title says it
    const mark = svg('text', {class: 'cut', x: chart.X(x[i]) + (isLeft ? -5 : 5), y: at, 'text-anchor': isLeft ? 'start' : 'end'}, chart.drawing, (isLeft ? `${glyph} ${number}` : `${number} ${glyph}`).trim());
    mark.style.fill = colour(series);
    svg('title', {}, mark, `outside of the chart here: ${short(values[i])}`);
  }
}

function drawMarks(chart) {
  const shown = DATA.runs[0].marks.map((mark) => [mark.kind, mark.step, mark.text]);
  const bad = Math.min(...chart.lines.flatMap((line) => line.series.bad));
  if (Number.isFinite(bad)) shown.push(['nan', bad, 'not finite from here']);
  let before = -Infinity;
  for (const [kind, at, text] of shown.sort((a, b) => a[1] - b[1])) {
    const x = chart.X(AXES[view.axis][1](DATA.runs[0], at)), isBad = kind === 'nan' ? ' nan' : '';
    const line = svg('line', {class: `mark${isBad}`, x1: x, x2: x, y1: MARGIN.top - 2, y2: HEIGHT - MARGIN.bottom}, chart.drawing);
    svg('title', {}, line, text);
    if (x - before > 11) { svg('text', {x, y: 10, 'text-anchor': 'middle', class: isBad}, chart.drawing, GLYPHS[kind]); before = x; }
  }
}

// --- the cursor, shared by all charts ---------------------------------------

function nearest(line, x) {
  let found = -1;
  line.x.forEach((each, i) => { if (found < 0 || Math.abs(each - x) < Math.abs(line.x[found] - x)) found = i; });
  return found;
}

function follow(chart, event) {
  if (!chart.back || !chart.lines.length) return;
  const line = chart.lines.reduce((a, b) => (b.x.length > a.x.length ? b : a));
  const i = nearest(line, chart.back(event.clientX - chart.drawing.getBoundingClientRect().left));
  if (i >= 0) moveTo(line.x[i]);
}

function step(chart, event) {
  if (!chart.lines || !chart.lines.length) return;
  const line = chart.lines.reduce((a, b) => (b.x.length > a.x.length ? b : a)), end = line.x.length - 1;
  const now = view.at === null ? end + 1 : nearest(line, view.at), far = Math.max(1, Math.round(end / 10));
  const to = {ArrowLeft: now - 1, ArrowRight: now + 1, PageUp: now - far, PageDown: now + far, Home: 0, End: end}[event.key];
  if (to === undefined) { if (event.key === 'Escape') moveTo(null); return; }
  event.preventDefault();
  moveTo(line.x[Math.min(end, Math.max(0, to))]);
  $('status').textContent = `${AXES[view.axis][0]} ${short(view.at)}: ${chart.keys.map(([key]) => `${key.title} ${key.textContent}`.replace(/ +/g, ' ').trim()).join(', ')}`;
}

function moveTo(x) {
  view.at = x;
  for (const chart of charts) {
    if (!chart.over) continue;
    chart.over.replaceChildren();
    if (x !== null) {
      svg('line', {class: 'cursor', x1: chart.X(x), x2: chart.X(x), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom}, chart.over);
      const isLeft = chart.X(x) < 120;
      svg('text', {x: chart.X(x) + (isLeft ? 5 : -5), y: HEIGHT - MARGIN.bottom + 13, 'text-anchor': isLeft ? 'start' : 'end'}, chart.over, short(x));
    }
    chart.panel.series.forEach((series, number) => {
      const [key, value] = chart.keys[number], line = chart.lines.find((each) => each.series === series);
      key.hidden = !line;
      const i = x === null || !line ? -1 : nearest(line, x), shown = i < 0 ? series.last : line.y[i];
      value.textContent = i >= 0 && shown === null ? 'not finite' : i < 0 && series.last === null ? 'not finite' : short(shown);
      if (i >= 0 && shown !== null && (!view.log || shown > 0)) svg('circle', {class: 'dot', cx: chart.X(line.x[i]), cy: Math.min(HEIGHT - MARGIN.bottom + 2, Math.max(MARGIN.top - 4, chart.Y(shown))), r: 3.6}, chart.over).style.fill = colour(series);
    });
  }
}

function redraw() {
  const ends = charts.flatMap(({panel}) => panel.series.filter((series) => !view.hidden.has(series.run)).flatMap((series) => [place(series, series.x[0]), place(series, series.x.at(-1))]));
  view.range = ends.length ? [Math.min(...ends), Math.max(...ends)] : [0, 1];
  charts.forEach(draw);
  moveTo(null);
  $('axis-name').textContent = AXES[view.axis][0];
}

// --- tables and buttons -----------------------------------------------------

function sortable(table) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((cell, column) => cell.querySelector('button')?.addEventListener('click', () => {
    const turn = cell.getAttribute('aria-sort') === 'ascending' ? -1 : 1;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort');
    cell.setAttribute('aria-sort', turn > 0 ? 'ascending' : 'descending');
    const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const rank = (a, b) => (a === '') - (b === '') || turn * (isNaN(a) || isNaN(b) ? a.localeCompare(b, 'en', {numeric: true}) : a - b);
    body.append(...[...body.rows].sort((a, b) => rank(value(a), value(b))));
  }));
}

function start() {
  const axes = ['step', ...(DATA.runs.every((run) => run.epoch_length) ? ['epoch'] : []), ...(longest ? ['time'] : [])];
  for (const axis of axes) html('option', {value: axis}, $('axis'), {step: 'iterations', epoch: 'epochs', time: 'time'}[axis]);
  $('axis').addEventListener('change', (event) => { view.axis = event.target.value; redraw(); });
  $('smooth').addEventListener('input', (event) => { view.smooth = Number(event.target.value); redraw(); });
  $('log').addEventListener('change', (event) => { view.log = event.target.checked; redraw(); });
  for (const box of document.querySelectorAll('input[data-run]')) {
    box.addEventListener('change', () => { view.hidden[box.checked ? 'delete' : 'add'](Number(box.dataset.run)); redraw(); });
  }
  for (const panel of DATA.panels) addChart(panel, $(panel.section));
  if (DATA.left) html('span', {}, $('axis-name').parentNode, ` ${DATA.left} more values are in the log.`);
  document.querySelectorAll('table').forEach(sortable);
  for (const button of document.querySelectorAll('.command button')) {
    button.addEventListener('click', () => navigator.clipboard.writeText(button.previousElementSibling.textContent).then(() => { $('status').textContent = button.textContent = 'Copied'; }));
  }
  new ResizeObserver(redraw).observe($('width'));
  redraw();
}
start();
