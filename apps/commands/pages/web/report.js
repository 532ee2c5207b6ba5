'use strict';
// The report of one run or several: curves, examples, confusions, configs. `page` has
//   {runs: [{name, folder, metric, larger, best, train, valid, test, skipped, starts, samples, lengths,
//            confusion, config, warnings}], differing: [key], notice}
// train and valid are {names, columns}: a list of numbers for each name, with null for what is not finite.

const runs = page.runs;
const single = runs.length === 1;
const colourOf = i => colour('c' + i % 8);
runs.forEach(run => { run.shown = true; });

const state = {axis: 'step', smooth: 0, log: false};
const axes = {
  step: {label: 'updates', text: value => Math.round(value).toLocaleString('en')},
  tokens: {label: 'tokens', text: short},
  hours: {label: 'hours', text: timeText, ticker: timeTicks},
};

function timeText(hours) {
  if (hours < 2 / 60) return Math.round(hours * 36000) / 10 + ' s';
  return hours < 1 ? Math.round(hours * 600) / 10 + ' min' : short(hours) + ' h';
}

// Round numbers of the unit that the axis ends in.
function timeTicks(low, high, ...rest) {
  const [parts, unit] = high < 2 / 60 ? [3600, ' s'] : high < 1 ? [60, ' min'] : [1, ' h'];
  return Dygraph.numericTicks(low * parts, high * parts, ...rest).map(
      tick => ({...tick, v: tick.v / parts, label: tick.label && short(tick.v) + unit}));
}

// A number of a metric, with its unit.
const units = {
  peak_bytes: {scale: 1e-6, label: 'memory of tensors, peak', unit: 'MB', fromZero: true},
  process_peak_bytes: {scale: 1e-6, label: 'memory of the process, peak', unit: 'MB', fromZero: true},
  learning_rate: {label: 'learning rate'},
  grad_norm: {label: 'gradient norm'},
  teacher_divergence: {label: 'divergence from the teacher'},
  alignment_loss: {label: 'loss of the guided alignment'},
  tokens_per_s: {label: 'tokens per second', fromZero: true},
  ppl: {label: 'perplexity', log: true},  // the first one is a thousand times the last
  nll: {label: 'nll: loss without label smoothing'},
  exact_match: {label: 'exact match'},
  bleu: {label: 'BLEU'}, chrf: {label: 'chrF'}, 'chrf++': {label: 'chrF++'}, ter: {label: 'TER'},
  exchange_share: {label: 'share of the time for exchange between ranks'},
  slowest_over_mean: {label: 'slowest rank, over the mean'},
};
const labelOf = name => (units[name] && units[name].label) || name.replaceAll('_', ' ');
const scaleOf = name => (units[name] && units[name].scale) || 1;

// ---- Curves: a list of {run, part, name, x: {step, tokens, hours}, y} for each chart.

const hidden = ['step', 'epoch', 'tokens', 'seconds', 'skipped_updates', 'ranks', 'slowest_rank', 'checkpoint'];
const last = ['learning_rate', 'grad_norm', 'tokens_per_s', 'peak_bytes', 'process_peak_bytes', 'exchange_share', 'slowest_over_mean'];

function curvesOf(run, index, part) {
  const table = run[part];
  const column = name => table.columns[table.names.indexOf(name)];
  const hours = column('seconds') && column('seconds').map(s => s === null ? null : s / 3600);
  const x = {step: column('step'), tokens: column('tokens'), hours};
  return table.names.filter(name => !hidden.includes(name)).map(name => {
    const y = column(name).map(v => v === null ? NaN : v * scaleOf(name));
    return {run: index, part, name, x, y};
  });
}

const curves = runs.flatMap((run, i) => [...curvesOf(run, i, 'train'), ...curvesOf(run, i, 'valid')]);
const metrics = [...new Set(runs.map(run => run.metric))];
const names = [...new Set(curves.map(curve => curve.name))];
const rank = name => name === 'loss' || name === 'mse' ? 0 : metrics.includes(name) ? 1
    : last.includes(name) ? 5 + last.indexOf(name) : name === 'nll' ? 3 : name === 'ppl' ? 4 : 2;
names.sort((a, b) => rank(a) - rank(b));

// The exponential mean, corrected at its beginning, as TensorBoard draws it. Gaps stay.
function smoothed(values, weight) {
  if (weight === 0) return values;
  let mean = 0, share = 0;
  return values.map(value => {
    if (!isFinite(value)) return value;
    mean = mean * weight + (1 - weight) * value;
    share = share * weight + (1 - weight);
    return mean / share;
  });
}

// Where a curve stands at or before a place of the axis: the index, or -1.
function indexAt(places, value) {
  let low = 0, high = places.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (places[middle] === null || places[middle] <= value) low = middle + 1; else high = middle;
  }
  return low - 1;
}
function indexNear(places, value) {
  const before = indexAt(places, value);
  if (before < 0) return 0;
  if (before + 1 >= places.length) return before;
  return value - places[before] <= places[before + 1] - value ? before : before + 1;
}

// The place on the axis of an update of a run, from its lines.
function placeOf(run, step) {
  if (state.axis === 'step') return step;
  for (const part of ['train', 'valid']) {
    const own = curves.find(curve => curve.run === run && curve.part === part && curve.x[state.axis]);
    if (!own || own.x.step.length === 0) continue;
    const steps = own.x.step, places = own.x[state.axis], before = indexAt(steps, step);
    if (before < 0) return places[0] * step / Math.max(1, steps[0]);
    if (before + 1 >= steps.length) return places[before];
    const share = (step - steps[before]) / Math.max(1, steps[before + 1] - steps[before]);
    return places[before] + share * (places[before + 1] - places[before]);
  }
  return null;
}

// The first and the last place of all curves: charts that stand together have one axis.
function extentOf(axis) {
  let low = Infinity, high = -Infinity;
  for (const curve of curves) {
    if (!runs[curve.run].shown || !curve.x[axis]) continue;
    for (const place of curve.x[axis]) {
      if (place === null) continue;
      if (place < low) low = place;
      if (place > high) high = place;
    }
  }
  return low > high ? [] : [low, high];
}

const charts = [];

class Chart {
  constructor(name) {
    this.name = name;
    this.off = new Set();  // curves that the reader has hidden here
    this.all = curves.filter(curve => curve.name === name);
    this.legend = el('div', {class: 'legend'});
    this.plot = el('div', {class: 'plot', role: 'img', 'aria-label': labelOf(name) + ', a curve'});
    const unit = units[name] && units[name].unit;
    this.at = el('span', {class: 'soft at'});
    this.title = el('div', {class: 'title'}, el('h3', {}, labelOf(name) + (unit ? ', ' + unit : '')), this.at);
    this.node = el('section', {class: 'panel chart', 'data-name': name}, this.title, this.legend, this.plot);
  }

  // Those that can be drawn over the axis.
  drawn() {
    return this.all.filter(curve => runs[curve.run].shown && !this.off.has(curve) && curve.x[state.axis]);
  }

  draw() {
    const shown = this.drawn();
    const rows = new Map();
    shown.forEach((curve, i) => {
      const weight = curve.part === 'train' ? state.smooth : 0;
      curve.now = smoothed(curve.y, weight);
      curve.x[state.axis].forEach((place, k) => {
        if (place === null) return;
        if (!rows.has(place)) rows.set(place, new Array(shown.length).fill(null));
        rows.get(place)[i] = curve.now[k];
      });
    });
    if (rows.size > 0) {
      for (const place of extentOf(state.axis)) {
        if (!rows.has(place)) rows.set(place, new Array(shown.length).fill(null));
      }
    }
    const data = [...rows].sort((a, b) => a[0] - b[0]).map(([place, values]) => [place, ...values]);
    this.plot.replaceChildren();
    if (this.graph) this.graph.destroy();
    this.graph = null;
    this.tell(null);
    if (data.length === 0) {
      this.plot.append(el('p', {class: 'soft'}, 'Nothing to draw over ' + axes[state.axis].label + '.'));
      return;
    }
    const series = {};
    shown.forEach((curve, i) => {
      const few = Math.max(...shown.map(other => other.y.length)) <= 60;
      series['s' + i] = {
        color: this.colourOf(curve), strokeWidth: 1.6,
        strokePattern: this.isDashed(curve) ? [6, 3] : null,
        drawPoints: few || curve.part === 'valid' && curve.y.length <= 200, pointSize: curve.y.length === 1 ? 4 : 2,
      };
    });
    const axis = axes[state.axis];
    this.graph = new Dygraph(this.plot, data, {
      labels: ['x', ...shown.map((_, i) => 's' + i)], series,
      legend: 'never', connectSeparatedPoints: true, digitsAfterDecimal: 4, labelsKMB: false,
      logscale: (state.log || Boolean(units[this.name] && units[this.name].log)) && data.every(row => row.slice(1).every(v => v === null || !(v <= 0))),
      axisLineColor: colour('line'), gridLineColor: colour('grid'), gridLineWidth: 1, pixelRatio: dotsPerPixel(),
      includeZero: Boolean(units[this.name] && units[this.name].fromZero), highlightCircleSize: 4, xRangePad: 6, yRangePad: 8, interactionModel: withoutTouch(),
      axes: {
        x: {...(axis.ticker ? {ticker: axis.ticker} : {}), axisLabelFormatter: axis.text, valueFormatter: axis.text, axisLabelWidth: 64, pixelsPerLabel: this.plot.clientWidth < 420 ? 54 : 74},
        y: {axisLabelFormatter: short, axisLabelWidth: 58, pixelsPerLabel: 34},
      },
      highlightCallback: (event, place) => this.tell(place),
      unhighlightCallback: () => this.tell(null),
      // The marks lie over the grid, which is drawn after the underlay on the same canvas.
      underlayCallback: context => { this.context = context; },
      drawCallback: graph => this.mark(this.context, graph.getArea(), graph, shown),
    });
  }

  // One colour a run: what tells its two curves apart is the line.
  isDashed(curve) {
    return !single && curve.part === 'valid' && this.all.some(other => other.part === 'train');
  }

  colourOf(curve) {
    return single ? colour(curve.part === 'train' ? 'c0' : 'c1') : colourOf(curve.run);
  }

  // Vertical lines where updates were skipped and the run was resumed, a ring around the best. Of
  // several runs each has its colour, and what tells the lines apart are the dashes.
  mark(context, area, graph, shown) {
    const line = (place, name, dash, run) => {
      if (place === null) return;
      const x = Math.round(graph.toDomXCoord(place)) + .5;
      if (x < area.x || x > area.x + area.w) return;
      context.strokeStyle = single ? colour(name) : colourOf(run);
      context.lineWidth = 1;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(x, area.y);
      context.lineTo(x, area.y + area.h);
      context.stroke();
    };
    context.save();
    runs.forEach((run, i) => {
      if (!run.shown) return;
      resumesOf(run).forEach(start => line(placeOf(i, start.step), 'resume', [9, 3, 2, 3], i));
      run.skipped.slice(0, 500).forEach(step => line(placeOf(i, step), 'skip', [2, 3], i));
      if (run.best) line(placeOf(i, run.best.step), 'best', [5, 4], i);
    });
    context.setLineDash([]);
    for (const curve of shown) {
      const best = runs[curve.run].best;
      if (curve.part !== 'valid' || !best) continue;
      const at = curve.x.step.indexOf(best.step);
      if (at < 0 || !isFinite(curve.y[at])) continue;
      context.strokeStyle = single ? colour('best') : colourOf(curve.run);
      context.lineWidth = 2;
      context.beginPath();
      context.arc(graph.toDomXCoord(curve.x[state.axis][at]), graph.toDomYCoord(curve.now[at]), 6, 0, 2 * Math.PI);
      context.stroke();
    }
    context.restore();
  }

  // The legend, with the values near a place of the axis, or without any.
  tell(place) {
    const items = this.all.filter(curve => runs[curve.run].shown && curve.x[state.axis]).map(curve => {
      const both = this.all.some(other => other.run === curve.run && other.part !== curve.part);
      let text = single ? '' : runs[curve.run].name;
      if (single || both) text += (text ? ', ' : '') + (curve.part === 'train' ? 'training' : 'validation');
      // The place of a value stays when the pointer leaves the curves for the legend.
      const known = place !== null && curve.now && !this.off.has(curve);
      const value = known ? ' ' + short(curve.now[indexNear(curve.x[state.axis], place)]) : '';
      const chip = el('i', {class: 'chip' + (this.isDashed(curve) ? ' dashed' : '')});
      chip.style.borderColor = this.colourOf(curve);
      return el('button', {
        class: this.off.has(curve) ? 'off' : null, title: 'Show or hide this curve here', onclick: () => {
          if (!this.off.delete(curve)) this.off.add(curve);
          this.draw();
        },
      }, chip, text, el('span', {class: 'value'}, value));
    });
    this.legend.replaceChildren(...items);
    this.at.textContent = place === null ? '' : axes[state.axis].text(place) + (state.axis === 'hours' ? '' : ' ' + axes[state.axis].label);
  }
}

// A finger scrolls the page.
function withoutTouch() {
  const model = {...Dygraph.defaultInteractionModel};
  for (const event of ['touchstart', 'touchmove', 'touchend']) delete model[event];
  return model;
}

// A start of a run that was over is none.
const resumesOf = run => run.starts.filter(start => start.step > 0 && start.step < (lastOf(run.train, 'step') || 0));
const drawAll = () => charts.forEach(chart => printing ? chart.tell(null) : chart.draw());
redraws.push(drawAll);

// ---- The parts of the page.

function bestText(run) {
  if (!run.best) return '–';
  return short(run.best.value);
}

const lastOf = (table, name) => {
  const column = table.columns[table.names.indexOf(name)];
  return column && column.length > 0 ? column[column.length - 1] : null;
};

function medianOf(table, name) {
  const column = table.columns[table.names.indexOf(name)] || [];
  const sorted = column.filter(value => value !== null).sort((a, b) => a - b);
  return sorted.length > 0 ? sorted[sorted.length >> 1] : null;
}

function durationText(seconds) {
  if (seconds === null) return '–';
  const minutes = Math.round(seconds / 60);
  if (seconds < 90) return Math.round(seconds) + ' s';
  return minutes < 90 ? minutes + ' min' : (seconds / 3600).toFixed(1) + ' h';
}

function tiles(run) {
  const tile = (value, text) => value === '–' ? null : el('div', {class: 'panel tile'}, el('b', {}, value), el('span', {}, text));
  const steps = Math.max(lastOf(run.train, 'step') || 0, lastOf(run.valid, 'step') || 0);
  const train = name => short(lastOf(run.train, name));
  const testTiles = run.test ? Object.entries(run.test).filter(([name]) => name === run.metric)
      .map(([name, value]) => tile(short(value), 'test ' + labelOf(name))) : [];
  return el('div', {class: 'tiles'},
      run.best ? tile(bestText(run), 'best ' + labelOf(run.metric) + ', update ' + run.best.step.toLocaleString('en')) : null,
      ...testTiles,
      tile(train('loss'), 'training loss at the end'),
      tile(steps.toLocaleString('en'), 'updates'),
      tile(durationText(lastOf(run.train, 'seconds')), 'of training'),
      tile(train('tokens'), 'tokens read'),
      tile(short(medianOf(run.train, 'tokens_per_s')), 'tokens per second, median'),
      tile(run.skipped.length > 0 ? String(run.skipped.length) : '–', 'updates skipped'));
}

// What tells most about a run comes first; in the alphabet its data would.
function byMeaning(keys) {
  const parts = ['model.', 'training.', 'training.optimizer.'];
  const place = key => {
    const part = parts.findLastIndex(part => key.startsWith(part));
    return part < 0 ? parts.length : part;
  };
  return [...keys].sort((a, b) => place(a) - place(b));
}

function runList() {
  const differing = byMeaning(page.differing);
  const list = el('div', {class: 'runs panel', id: 'runs'});
  runs.forEach((run, i) => {
    const chip = el('i', {class: 'chip'});
    const paint = () => { chip.style.borderColor = colourOf(i); };
    redraws.push(paint);
    paint();
    const set = differing.filter(key => run.config[key] !== undefined);
    const keys = set.length > 0 ? set.map(key => key + '=' + run.config[key]) : differing.map(key => key + '=(not set)');
    const shown = keys.length > 8 ? [...keys.slice(0, 8), 'and ' + (keys.length - 8) + ' more keys, below'] : keys;
    const box = el('input', {type: 'checkbox', onchange: event => {
      run.shown = event.currentTarget.checked;
      drawAll();
    }});
    box.checked = true;
    const best = run.best ? 'best ' + labelOf(run.metric) + ' ' + bestText(run) + ' at update ' + run.best.step.toLocaleString('en') : '';
    list.append(el('label', {}, box, el('b', {}, chip, run.name), el('span', {class: 'keys'}, shown.join('  ')),
        el('span', {class: 'soft'}, best)));
  });
  return list;
}

function controls() {
  const offered = Object.entries(axes).filter(([name]) => curves.some(curve => curve.x[name]));
  return el('div', {class: 'controls row'},
      el('label', {}, 'over', buttonGroup('Axis', offered.map(([name, axis]) => [name, axis.label]), state.axis, name => {
        state.axis = name;
        drawAll();
      })),
      el('label', {}, 'smooth', el('input', {type: 'range', id: 'smooth', min: 0, max: 0.98, step: 0.02, value: 0, oninput: event => {
        state.smooth = +event.currentTarget.value;
        drawAll();
      }})),
      el('label', {}, el('input', {type: 'checkbox', id: 'log', onchange: event => {
        state.log = event.currentTarget.checked;
        drawAll();
      }}), 'logarithmic'),
      el('span', {class: 'soft'}, 'drag to zoom in, double-click to zoom out'));
}

function marksLegend() {
  const some = what => runs.some(what);
  if (!single) {
    const lines = [some(run => run.best) ? 'dashed: its best validation' : '',
      some(run => run.skipped.length > 0) ? 'dotted: an update that was skipped, its gradient was not finite' : '',
      some(run => resumesOf(run).length > 0) ? 'dashes and dots: it went on from a checkpoint' : ''].filter(text => text);
    return el('div', {class: 'marks'}, lines.length > 0 ? 'Lines in the colour of a run. ' : '', ...lines.map(text => el('span', {}, text)));
  }
  const item = (name, text) => {
    const sign = el('i', {});
    const paint = () => { sign.style.borderColor = colour(name); };
    redraws.push(paint);
    paint();
    return el('span', {}, sign, text);
  };
  return el('div', {class: 'marks'},
      runs[0].best ? item('best', 'best validation') : null,
      some(run => run.skipped.length > 0) ? item('skip', 'an update that was skipped: its gradient was not finite') : null,
      some(run => resumesOf(run).length > 0) ? item('resume', 'the run went on from a checkpoint') : null);
}

// A section of one run at a time, where there are several. make(run) gives its content or null.
function perRun(title, about, make) {
  const having = runs.filter(run => make(run) !== null);
  if (having.length === 0) return null;
  const content = el('div', {});
  const show = run => content.replaceChildren(make(run));
  const choice = having.length < 2 ? null : el('select', {'aria-label': 'Run', onchange: event => show(having[+event.currentTarget.value])},
      ...having.map((run, i) => el('option', {value: i}, run.name)));
  show(having[0]);
  redraws.push(() => show(having[choice ? +choice.value : 0]));
  return el('section', {}, el('h2', {}, title), el('div', {class: 'row'}, choice, about ? el('span', {class: 'soft'}, about) : null), content);
}

// The validations to show of many: the first, the last, the best and some between.
function someOf(list, run) {
  const most = 8;
  if (list.length <= most) return list;
  const kept = new Set();
  for (let i = 0; i < most; ++i) kept.add(Math.round(i * (list.length - 1) / (most - 1)));
  if (run.best) list.forEach((one, i) => { if (one.step === run.best.step) kept.add(i); });
  return list.filter((_, i) => kept.has(i));
}

function exampleNode(run, example, all) {
  const outputs = all ? example.outputs : someOf(example.outputs, run);
  const given = el('div', {class: 'given grow'});
  for (const [name, text] of example.given) given.append(el('b', {}, name), el('span', {class: 'text'}, text));
  const body = el('tbody', {});
  for (const one of outputs) {
    const best = run.best && run.best.step === one.step;
    const cell = el('td', {class: 'text'}, one.output);
    if (one.guesses) {
      const truth = (example.given.find(([name]) => name === 'class') || [])[1];
      cell.replaceChildren(...one.guesses.map(([name, share]) =>
          el('span', {class: 'guess' + (name === truth ? ' right' : '')}, name + ' ' + (100 * share).toFixed(1) + ' %')));
    }
    body.append(el('tr', {class: best ? 'best' : null}, el('th', {class: 'when', scope: 'row'}, one.step.toLocaleString('en') + (best ? ' (best)' : '')), cell));
  }
  const image = example.png ? el('img', {src: 'data:image/png;base64,' + example.png, alt: 'the image of this example'}) : null;
  return el('div', {class: 'panel example'}, el('div', {class: 'with-image'}, image, given), el('table', {}, body));
}

function samplesNode(run, all) {
  if (run.samples.length === 0) return null;
  return el('div', {}, ...run.samples.map(example => exampleNode(run, example, all)));
}

// Bars of the score by length, of runs with the same groups.
function lengthsPicture(having) {
  const groups = having[0].lengths.groups, width = 760, height = 260, left = 44, bottom = 46, top = 14;
  const most = Math.max(1, ...having.flatMap(run => run.lengths.groups.map(group => group.score)));
  const nice = [1, 2, 5, 10, 20, 25, 50, 100].find(step => most / step <= 5) || 100;
  const ceiling = Math.ceil(most / nice) * nice;
  const y = value => top + (height - top - bottom) * (1 - value / ceiling);
  const picture = svg('svg', {viewBox: `0 0 ${width} ${height}`, class: 'bars', role: 'img', 'aria-label': 'Score by length of the sentences'});
  for (let value = 0; value <= ceiling; value += nice) {
    picture.append(svg('line', {x1: left, x2: width, y1: y(value), y2: y(value), stroke: colour('grid')}),
        svg('text', {x: left - 7, y: y(value) + 4, 'text-anchor': 'end', class: 'soft'}, String(value)));
  }
  const column = (width - left) / groups.length, bar = Math.min(60, column * .8 / having.length);
  groups.forEach((group, g) => {
    const middle = left + column * (g + .5);
    having.forEach((run, k) => {
      const {score} = run.lengths.groups[g];
      const x = middle + (k - having.length / 2) * bar;
      const text = `${having.length > 1 ? run.name + ': ' : ''}${labelOf(run.lengths.metric)} ${score.toFixed(1)} on ${group.sentences} sentences of ${group.from} to ${group.to} words`;
      picture.append(svg('rect', {x: x + 1, width: bar - 2, y: y(score), height: Math.max(0, y(0) - y(score)), fill: colourOf(runs.indexOf(run)), rx: 2}, svg('title', {}, text)),
          svg('text', {x: x + bar / 2, y: y(score) - 4, 'text-anchor': 'middle', style: bar < 30 ? 'font-size: 9px' : ''}, score.toFixed(bar < 30 ? 0 : 1)));
    });
    picture.append(svg('text', {x: middle, y: height - 27, 'text-anchor': 'middle'}, group.from === group.to ? String(group.from) : group.from + '–' + group.to),
        svg('text', {x: middle, y: height - 12, 'text-anchor': 'middle', class: 'soft', style: 'font-size: 10px'}, group.sentences + ' sent.'));
  });
  const step = having.map(run => run.lengths.step.toLocaleString('en')).join(', ');
  return el('div', {}, el('p', {class: 'soft'}, `Words of the reference, validation after update ${step}.`), el('div', {class: 'scroll'}, picture));
}

// Side by side where all runs have the same groups of the same metric, else one run at a time: each
// validation set is cut into groups of its own.
function lengthsNode() {
  const having = runs.filter(run => run.lengths);
  if (having.length === 0) return null;
  const cut = ({lengths}) => JSON.stringify([lengths.metric, lengths.groups.map(({from, to, sentences}) => [from, to, sentences])]);
  const together = having.every(run => cut(run) === cut(having[0]));
  const metric = new Set(having.map(run => run.lengths.metric)).size === 1 ? labelOf(having[0].lengths.metric) : 'Score';
  const section = perRun(metric + ' by the length of the sentences', '', run => {
    if (together) return run === having[0] ? lengthsPicture(having) : null;
    return run.lengths ? lengthsPicture([run]) : null;
  });
  section.id = 'lengths';
  return section;
}

function confusionNode(run) {
  if (!run.confusion) return null;
  const {classes, counts} = run.confusion, accent = colour('c0');
  const head = el('tr', {}, el('td', {}), ...classes.map(name => el('th', {scope: 'col'}, name)));
  const body = el('tbody', {});
  counts.forEach((row, t) => {
    const sum = row.reduce((a, b) => a + b, 0);
    const line = el('tr', {}, el('th', {scope: 'row'}, classes[t]));
    row.forEach((count, p) => {
      const share = sum === 0 ? 0 : count / sum;
      const cell = el('td', {}, count === 0 ? '·' : String(count));
      cell.style.background = count === 0 ? '' : `color-mix(in srgb, ${t === p ? accent : colour('c1')} ${Math.round(12 + 78 * Math.sqrt(share))}%, transparent)`;
      if (share > .5) cell.style.color = colour('back');
      cell.addEventListener('mousemove', event => showTip(event, `${count} of ${sum} "${classes[t]}" were taken for "${classes[p]}" (${(100 * share).toFixed(1)} %)`));
      cell.addEventListener('mouseleave', event => showTip(event, ''));
      line.append(cell);
    });
    body.append(line);
  });
  return el('div', {}, el('p', {class: 'soft'}, `A row for each class, a column for what its examples were taken for. Validation after update ${run.confusion.step.toLocaleString('en')}.`),
      el('div', {class: 'scroll'}, el('table', {class: 'confusion'}, el('thead', {}, head), body)));
}

function configNode() {
  const keys = [...new Set([...page.differing, ...runs.flatMap(run => Object.keys(run.config))])];
  if (keys.length === 0) return null;
  const body = el('tbody', {});
  for (const key of keys) {
    body.append(el('tr', {class: page.differing.includes(key) ? 'differs' : null, 'data-key': key}, el('th', {class: 'mono', scope: 'row'}, key),
        ...runs.map(run => el('td', {class: 'mono'}, run.config[key] === undefined ? '–' : run.config[key]))));
  }
  const filter = el('input', {type: 'search', placeholder: 'Find a key', 'aria-label': 'Find a key', oninput: event => {
    const word = event.currentTarget.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(word);
  }});
  const head = el('tr', {}, el('th', {scope: 'col'}, 'key'), ...runs.map(run => el('th', {scope: 'col'}, run.name)));
  return el('section', {id: 'config'}, el('h2', {}, 'Config'), el('div', {class: 'row screen'}, filter),
      el('div', {class: 'panel config'}, el('table', {}, el('thead', {}, head), body)));
}

function startsNode(run) {
  if (run.starts.length === 0) return null;
  const names = [...new Set(run.starts.flatMap(start => Object.keys(start)))].filter(name => name !== 'step');
  const row = name => el('tr', {}, el('th', {scope: 'row'}, name), ...run.starts.map(start => el('td', {}, start[name] === undefined ? '–' : String(start[name]))));
  const head = el('tr', {}, el('th', {}), ...run.starts.map(start => el('th', {scope: 'col'}, start.step > 0 ? 'from update ' + start.step.toLocaleString('en') : 'start')));
  return el('div', {class: 'panel scroll'}, el('table', {}, el('thead', {}, head), el('tbody', {}, ...names.map(row))));
}

// ---- All of it.

const main = el('main', {});
const about = single ? runs[0].folder : runs.length + ' runs';
document.body.prepend(pageHeader(single ? runs[0].name : 'Runs side by side', about), main);
const warnings = runs.flatMap(run => run.warnings);
if (warnings.length > 0) main.append(el('div', {class: 'notice'}, ...warnings.map(text => el('p', {}, text))));
main.append(single ? tiles(runs[0]) : runList(), controls(), marksLegend());
const grid = el('div', {class: 'charts as-drawn'});
main.append(grid);
for (const name of names) {
  const chart = new Chart(name);
  charts.push(chart);
  grid.append(chart.node);
}
drawAll();
let showAll = false;
const samples = perRun('Examples of the validation set', 'What the model made of them as it learned.', run => samplesNode(run, showAll));
if (samples) {
  samples.id = 'samples';
  if (runs.some(run => run.samples.some(example => example.outputs.length > someOf(example.outputs, run).length))) {
    samples.querySelector('.row').append(el('label', {class: 'screen'}, el('input', {type: 'checkbox', onchange: event => {
      showAll = event.currentTarget.checked;
      redraw();
    }}), ' all validations'));
  }
  main.append(samples);
}
for (const node of [lengthsNode(), perRun('Confusion of the classes', '', confusionNode), configNode(), perRun('Machine and versions', '', startsNode)]) {
  if (node) main.append(node);
}
document.body.append(el('footer', {}, el('p', {}, page.notice),
    el('details', {class: 'screen'}, el('summary', {}, 'The curves are drawn by dygraphs, under this licence'),
        el('pre', {}, JSON.parse(document.getElementById('licence').textContent)))));
