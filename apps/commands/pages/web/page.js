'use strict';
// What all pages share: elements, numbers as text, light and dark, a tip beside the pointer.

const page = JSON.parse(document.getElementById('data').textContent);

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) {
      node.addEventListener(name.slice(2), value);
    } else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? '' : value);
    }
  }
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Four digits: 1.234, 12.34k, 0.0001234.
function short(value) {
  if (value === null || value === undefined || !isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size >= 1e9) return +(value / 1e9).toPrecision(4) + 'G';
  if (size >= 1e6) return +(value / 1e6).toPrecision(4) + 'M';
  if (size >= 1e4) return +(value / 1e3).toPrecision(4) + 'k';
  if (size > 0 && size < 1e-3) return value.toExponential(2).replace(/\.?0+e/, 'e');
  return String(+value.toPrecision(4));
}

const colour = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();

// Who draws on canvases draws again when the colours change.
const redraws = [];
const redraw = () => redraws.forEach(again => again());

const wantsDark = matchMedia('(prefers-color-scheme: dark)');
let chosenTheme = null;  // by the button; else the system's
let printing = false;
function setTheme() {
  const root = document.documentElement.classList;
  const dark = chosenTheme === null ? wantsDark.matches : chosenTheme === 'dark';
  root.toggle('dark', dark && !printing);
  root.toggle('drawn-dark', dark && printing);
  redraw();
}
wantsDark.addEventListener('change', setTheme);
document.documentElement.classList.toggle('dark', wantsDark.matches);

// What is drawn while a page goes to the printer stays white there. So canvases go to paper as they are, as a
// whole made so small that they fit (which makes them sharp), and their colours turned by page.css.
addEventListener('beforeprint', () => {
  for (const node of document.querySelectorAll('.as-drawn')) {
    node.style.width = node.clientWidth + 'px';
    node.style.zoom = Math.min(1, 690 / node.clientWidth);
  }
  printing = true;
  setTheme();
});
addEventListener('afterprint', () => {
  for (const node of document.querySelectorAll('.as-drawn')) node.style.width = node.style.zoom = '';
  printing = false;
  setTheme();
});
const dotsPerPixel = () => Math.max(2, window.devicePixelRatio || 1);

function themeButton() {
  return el('button', {class: 'screen', title: 'Light or dark', onclick: () => {
    chosenTheme = document.documentElement.classList.contains('dark') ? 'light' : 'dark';
    setTheme();
  }}, '◐');
}

function pageHeader(title, about) {
  return el('header', {}, el('h1', {}, title), el('span', {class: 'soft grow'}, about), themeButton());
}

// Buttons of which one is pressed. choose(value) is called for a new one.
function buttonGroup(label, values, chosen, choose) {
  const group = el('span', {class: 'group', role: 'group', 'aria-label': label});
  for (const [value, text] of values) {
    group.append(el('button', {'data-value': value, 'aria-pressed': String(value === chosen), onclick: event => {
      for (const button of group.children) button.setAttribute('aria-pressed', String(button === event.currentTarget));
      choose(value);
    }}, text));
  }
  return group;
}

const tip = el('div', {id: 'tip', role: 'status'});
document.body.append(tip);
function showTip(event, text) {
  tip.textContent = text;
  if (!text) return;
  const box = tip.getBoundingClientRect();
  const right = event.clientX + 14 + box.width > innerWidth;
  tip.style.left = Math.max(4, right ? event.clientX - box.width - 10 : event.clientX + 14) + 'px';
  tip.style.top = Math.min(innerHeight - box.height - 4, event.clientY + 16) + 'px';
}
