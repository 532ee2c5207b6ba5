'use strict';
// What a model attends to. `page` is a list of inputs: {title, axes: [[label]], maps: [{name, rows, columns,
// heads}], image}: heads[h][t][s] counts thousandths, rows and columns are numbers of axes. With an image the
// only row is that of its CLS token, column 0 is that token itself, and the others are patches, row by row.

const inputs = page;
// Pieces in a row are hard to read: where they say where words begin, the words.
for (const input of inputs) {
  if (input.title.includes('▁')) input.title = input.title.split(' ').join('').replaceAll('▁', ' ').trim();
}
const state = {input: 0, map: 0, head: 'mean', size: 22};

const current = () => inputs[state.input];
const currentMap = () => current().maps[Math.min(state.map, current().maps.length - 1)];

// One head's weights, or the mean of all.
function weightsOf(map, head) {
  if (head !== 'mean') return map.heads[Math.min(head, map.heads.length - 1)];
  if (!map.mean) {
    map.mean = map.heads[0].map((row, t) => row.map((_, s) => map.heads.reduce((sum, one) => sum + one[t][s], 0) / map.heads.length));
  }
  return map.mean;
}

function rgb(name) {
  const text = colour(name).slice(1);
  return [0, 2, 4].map(at => parseInt(text.slice(at, at + 2), 16));
}

// Small weights are many: the root makes them visible.
const shadeOf = weight => Math.sqrt(Math.min(1000, weight) / 1000);

// A pixel for each weight.
function pixelsOf(weights) {
  const height = weights.length, width = weights[0].length, pixels = new ImageData(width, height);
  const [red, green, blue] = rgb('accent'), [red0, green0, blue0] = rgb('panel');
  weights.forEach((row, t) => row.forEach((weight, s) => {
    const shade = shadeOf(weight), at = 4 * (t * width + s);
    pixels.data[at] = red0 + (red - red0) * shade;
    pixels.data[at + 1] = green0 + (green - green0) * shade;
    pixels.data[at + 2] = blue0 + (blue - blue0) * shade;
    pixels.data[at + 3] = 255;
  }));
  return pixels;
}

function canvasOf(width, height, scale) {
  const canvas = el('canvas', {width: Math.round(width * scale), height: Math.round(height * scale)});
  canvas.style.width = width + 'px';
  canvas.style.height = height + 'px';
  const context = canvas.getContext('2d');
  context.scale(scale, scale);
  return [canvas, context];
}

// ---- Patches over an image.

const images = new Map();  // by their text, once they are decoded
function decoded(image) {
  if (!images.has(image.png)) {
    const node = new Image();
    node.onload = () => redraw();
    node.src = 'data:image/png;base64,' + image.png;
    images.set(image.png, node);
  }
  return images.get(image.png);
}

function drawPatches(canvas, image, shares, zoom) {
  canvas.width = image.width * zoom;
  canvas.height = image.height * zoom;
  const context = canvas.getContext('2d'), size = image.patch_size * zoom, across = image.width / image.patch_size;
  context.imageSmoothingEnabled = false;
  const source = decoded(image);
  if (source.complete && source.naturalWidth > 0) context.drawImage(source, 0, 0, canvas.width, canvas.height);
  const most = Math.max(1, ...shares.slice(1)), [red, green, blue] = rgb('c1');
  shares.slice(1).forEach((share, i) => {
    context.fillStyle = `rgba(${red}, ${green}, ${blue}, ${.75 * share / most})`;
    context.fillRect(size * (i % across), size * Math.floor(i / across), size, size);
  });
}

function pictureNode(input, map) {
  const image = input.image, shares = weightsOf(map, state.head)[0], labels = input.axes[map.columns];
  const zoom = Math.max(1, Math.round(448 / image.width)), canvas = el('canvas', {});
  drawPatches(canvas, image, shares, zoom);
  canvas.addEventListener('mousemove', event => {
    const scale = image.width / canvas.clientWidth, across = image.width / image.patch_size;
    const x = Math.floor(event.offsetX * scale / image.patch_size), y = Math.floor(event.offsetY * scale / image.patch_size);
    const i = y * across + x + 1;
    showTip(event, shares[i] === undefined ? '' : `${labels[i]}: ${(shares[i] / 10).toFixed(1)} %; the picture's own token: ${(shares[0] / 10).toFixed(1)} %`);
  });
  canvas.addEventListener('mouseleave', event => showTip(event, ''));
  return el('div', {class: 'panel picture'}, canvas);
}

// ---- Tokens along two sides.

const fontOf = size => `${Math.max(9, Math.min(14, size - 4))}px system-ui, "DejaVu Sans", sans-serif`;

function widestOf(labels, font) {
  const context = document.createElement('canvas').getContext('2d');
  context.font = font;
  return Math.min(190, Math.ceil(Math.max(...labels.map(label => context.measureText(label).width))) + 12);
}

// Where cells are small, only each so many labels have room.
const every = size => Math.max(1, Math.ceil(11 / size));

function mapNode(input, map) {
  const weights = weightsOf(map, state.head), rows = input.axes[map.rows], columns = input.axes[map.columns];
  const size = state.size, font = fontOf(size), left = widestOf(rows, font), top = widestOf(columns, font);
  const width = size * columns.length, height = size * rows.length;
  const scale = Math.min(dotsPerPixel(), 8000 / Math.max(width, height, 1));
  const [topCanvas, topContext] = canvasOf(width, top, scale), [leftCanvas, leftContext] = canvasOf(left, height, scale);
  const [cells, context] = canvasOf(width, height, scale);
  for (const side of [topContext, leftContext]) {
    side.font = font;
    side.fillStyle = colour('text');
    side.textBaseline = 'middle';
  }
  leftContext.textAlign = 'right';
  rows.forEach((label, t) => { if (t % every(size) === 0) leftContext.fillText(label, left - 6, size * (t + .5), left - 8); });
  columns.forEach((label, s) => {
    if (s % every(size) !== 0) return;
    topContext.save();
    topContext.translate(size * (s + .5), top - 6);
    topContext.rotate(-Math.PI / 2);
    topContext.fillText(label, 0, 0, top - 8);
    topContext.restore();
  });
  const small = el('canvas', {width: columns.length, height: rows.length});
  small.getContext('2d').putImageData(pixelsOf(weights), 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, width, height);
  if (size >= 10) {
    context.fillStyle = colour('back');
    for (let s = 1; s < columns.length; ++s) context.fillRect(size * s - .5, 0, 1, height);
    for (let t = 1; t < rows.length; ++t) context.fillRect(0, size * t - .5, width, 1);
  }
  const across = el('div', {class: 'cross'}), down = el('div', {class: 'cross'});
  cells.addEventListener('mousemove', event => {
    const s = Math.floor(event.offsetX / size), t = Math.floor(event.offsetY / size);
    if (weights[t] === undefined || weights[t][s] === undefined) return showTip(event, '');
    across.style.cssText = `left:0; top:${top + size * t}px; width:${left + width}px; height:${size}px; border-width:1px 0`;
    down.style.cssText = `top:0; left:${left + size * s}px; height:${top + height}px; width:${size}px; border-width:0 1px`;
    showTip(event, `“${rows[t]}” asks “${columns[s]}”: ${(weights[t][s] / 10).toFixed(1)} %`);
  });
  cells.addEventListener('mouseleave', event => {
    across.style.cssText = down.style.cssText = '';
    showTip(event, '');
  });
  const place = (node, x, y, w, h) => {
    const box = el('div', {}, node);
    box.style.cssText = `position:absolute; left:${x}px; top:${y}px; width:${w}px; height:${h}px`;
    return box;
  };
  const inside = el('div', {class: 'sizes'});
  const corner = el('div', {class: 'corner'});
  corner.style.cssText = `width:${left}px; height:${top}px`;
  const topBox = el('div', {class: 'top'}, topCanvas), leftBox = el('div', {class: 'left'}, leftCanvas);
  const cellBox = el('div', {}, cells);
  for (const canvas of [topCanvas, leftCanvas, cells]) canvas.style.position = 'static';
  inside.append(corner, topBox, leftBox, cellBox);
  return el('div', {class: 'map', tabindex: 0, 'aria-label': 'Attention weights'}, el('div', {class: 'inside'}, inside, across, down));
}

// ---- All heads at a glance.

function thumbOf(input, map, m, head) {
  const canvas = el('canvas', {}), weights = weightsOf(map, head);
  if (input.image) {
    drawPatches(canvas, input.image, weights[0], Math.max(1, Math.round(112 / input.image.width)));
  } else {
    canvas.width = weights[0].length;
    canvas.height = weights.length;
    canvas.getContext('2d').putImageData(pixelsOf(weights), 0, 0);
  }
  const text = head === 'mean' ? 'mean' : 'head ' + (head + 1);
  return el('button', {
    class: 'thumb', title: map.name + ', ' + text, 'data-map': m, 'data-head': head,
    'aria-pressed': String(m === state.map && head === state.head), onclick: () => {
      state.map = m;
      state.head = head;
      choose();
    },
  }, canvas, el('span', {}, text));
}

function drawGlance() {
  const input = current();
  glance.replaceChildren(...input.maps.flatMap((map, m) => [
    el('h3', {}, map.name),
    el('div', {class: 'thumbs'}, thumbOf(input, map, m, 'mean'), ...map.heads.map((_, head) => thumbOf(input, map, m, head))),
  ]));
}

function drawLarge() {
  const input = current(), map = currentMap();
  const headText = state.head === 'mean' ? 'mean of ' + map.heads.length + ' heads' : 'head ' + (state.head + 1) + ' of ' + map.heads.length;
  large.replaceChildren(el('p', {}, el('b', {}, map.name), ', ' + headText), (input.image ? pictureNode : mapNode)(input, map));
}

// What was chosen shows in the lists and in the glance.
function choose() {
  state.map = Math.min(state.map, current().maps.length - 1);
  if (state.head !== 'mean') state.head = Math.min(state.head, currentMap().heads.length - 1);
  mapChoice.replaceChildren(...current().maps.map((map, i) => el('option', {value: i}, map.name)));
  mapChoice.value = state.map;
  headChoice.replaceChildren(el('option', {value: 'mean'}, 'mean of all'), ...currentMap().heads.map((_, i) => el('option', {value: i}, 'head ' + (i + 1))));
  headChoice.value = state.head;
  sizeLabel.hidden = Boolean(current().image);
  for (const thumb of glance.querySelectorAll('.thumb')) {
    thumb.setAttribute('aria-pressed', String(thumb.dataset.map === String(state.map) && thumb.dataset.head === String(state.head)));
  }
  drawLarge();
}

// Cells as large as fit, and never so small that nothing can be told apart.
function chooseInput(number) {
  state.input = number;
  const input = current();
  title.textContent = input.title;
  if (input.maps.length === 0) return large.replaceChildren(el('p', {class: 'soft'}, 'This input has no attention.'));
  const tokens = Math.max(...input.maps.map(map => Math.max(input.axes[map.rows].length, input.axes[map.columns].length)));
  state.size = Math.max(7, Math.min(38, Math.floor(Math.min(680, innerWidth - 120) / tokens)));
  sizeChoice.value = state.size;
  drawGlance();
  choose();
}

const main = el('main', {});
const glance = el('div', {class: 'glance panel'}), large = el('div', {class: 'large'});
const title = el('p', {class: 'title text'});
const inputChoice = el('select', {id: 'input', onchange: event => chooseInput(+event.currentTarget.value)},
    ...inputs.map((input, i) => el('option', {value: i}, (i + 1) + ': ' + (input.title.length > 60 ? input.title.slice(0, 60) + '…' : input.title))));
const mapChoice = el('select', {id: 'map', onchange: event => { state.map = +event.currentTarget.value; choose(); }});
const headChoice = el('select', {id: 'head', onchange: event => {
  const value = event.currentTarget.value;
  state.head = value === 'mean' ? value : +value;
  choose();
}});
const sizeChoice = el('input', {type: 'range', id: 'size', min: 4, max: 40, oninput: event => { state.size = +event.currentTarget.value; drawLarge(); }});
const sizeLabel = el('label', {}, 'size', sizeChoice);
document.body.prepend(pageHeader('Attention', inputs.length === 1 ? 'one input' : inputs.length + ' inputs'), main);
main.append(
    el('p', {class: 'soft'}, inputs.some(input => input.image)
        ? 'How much of its attention the token of the whole picture (CLS) gives to each patch. The more, the stronger the colour.'
        : 'Each row is a token that asks, each column one that answers; a row adds up to 100 %.'),
    el('div', {class: 'controls row'}, el('label', {}, 'input', inputChoice), el('label', {}, 'layer', mapChoice),
        el('label', {}, 'head', headChoice), sizeLabel),
    title, el('div', {class: 'both as-drawn'}, glance, large));
if (inputs.length > 0) {
  redraws.push(() => {
    if (printing) return;
    drawGlance();
    drawLarge();
  });
  chooseInput(0);
} else {
  title.textContent = 'There was no input.';
}
