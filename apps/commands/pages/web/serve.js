'use strict';
// The page of `tapestry serve`. Which parts it shows, /v1/models decides: a row of `parts` for each ability.

let key = '';  // of --api-key-file; kept nowhere

async function ask(path, body, signal) {
  const headers = {'Content-Type': 'application/json'};
  if (key) headers.Authorization = 'Bearer ' + key;
  const reply = await fetch(path, body ? {method: 'POST', headers, body: JSON.stringify(body), signal} : {headers});
  if (reply.ok) return reply;
  const problem = await reply.json().catch(() => ({error: reply.statusText}));
  throw Object.assign(new Error(problem.error.message || problem.error), {status: reply.status});
}

// The texts of a stream of server-sent events, as they come.
async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    rest += value;
    for (let end; (end = rest.indexOf('\n\n')) >= 0; rest = rest.slice(end + 2)) {
      const line = rest.slice(0, end).replace(/^data: /, '');
      if (line === '[DONE]') return;
      const event = JSON.parse(line);
      if (event.error) throw new Error(event.error.message);
      yield event.choices[0];
    }
  }
}

function field(tag, label, attributes) {
  const node = el(tag, attributes);
  return {node, labelled: el('label', {}, label, node)};
}

// Calls `work` once nobody has typed for a moment; a newer call ends an older one.
function typed(node, out, work) {
  let timer = 0, running = null, turn = 0;
  const start = async () => {
    if (running) running.abort();
    running = new AbortController();
    const own = ++turn, signal = running.signal;
    out.setAttribute('aria-busy', 'true');
    try {
      const shown = node.value.trim() ? await work(node.value, signal) : '';
      if (own === turn) out.replaceChildren(shown);
    } catch (error) {
      if (error.name !== 'AbortError') out.replaceChildren(el('span', {class: 'problem'}, error.message));
    }
    if (own === turn) out.removeAttribute('aria-busy');
  };
  node.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(start, 250); });
}

function typing(label, placeholder, work, below = () => null) {
  const {node, labelled} = field('textarea', label, {placeholder, spellcheck: 'false'});
  const out = el('div', {class: 'panel answer', role: 'status', 'aria-live': 'polite'});
  typed(node, out, work);
  const sides = el('div', {class: 'sides'}, labelled, el('div', {}, el('label', {}, 'answer'), out));
  return el('div', {}, sides, below(node, out));
}

// The mean of a layer's heads, a row for each token that asks.
function heat(page, map) {
  const labels = name => page.axes.find(axis => axis.name === name).tokens.map(token => token.replace('▁', '') || '␣');
  const rows = labels(map.rows), columns = labels(map.columns);
  const mean = (t, s) => map.heads.reduce((sum, head) => sum + head[t][s], 0) / map.heads.length;
  return el('div', {class: 'wide-scroll', tabindex: '0', role: 'region', 'aria-label': map.name}, el('table', {class: 'heat'},
      el('tr', {}, el('td', {}), ...columns.map(label => el('th', {scope: 'col'}, el('span', {}, label)))),
      ...rows.map((row, t) => el('tr', {}, el('th', {scope: 'row'}, row), ...columns.map((column, s) => {
        const percent = 100 * mean(t, s), words = `“${row}” to “${column}”: ${percent.toFixed(1)} %`;
        const shade = Math.round(10 * Math.sqrt(percent));  // the root makes small shares visible
        return el('td', {title: words, style: `background: color-mix(in srgb, var(--accent) ${shade}%, transparent)`});
      })))));
}

// A button that shows who attended to whom in what `texts()` tells.
function attending(model, texts) {
  const place = el('div', {class: 'stack', role: 'status'});
  const button = el('button', {onclick: async () => {
    button.setAttribute('aria-busy', 'true');
    try {
      const page = (await (await ask('attention', {model, ...texts()})).json()).pages[0];
      const out = el('div', {}), {node, labelled} = field('select', 'layer', {});
      page.maps.forEach((map, i) => node.append(el('option', {value: i}, map.name)));
      const draw = () => out.replaceChildren(heat(page, page.maps[Number(node.value)]));
      node.addEventListener('change', draw);
      node.value = String(page.maps.length - 1);
      place.replaceChildren(labelled, out);
      draw();
    } catch (error) {
      place.replaceChildren(el('span', {class: 'problem'}, error.message));
    }
    button.removeAttribute('aria-busy');
  }}, 'Attention');
  return el('div', {class: 'stack'}, el('div', {class: 'row'}, button), place);
}

// A table of words or classes with a bar for each probability.
function shares(rows) {
  return el('table', {}, ...rows.map(row => el('tr', {}, el('td', {}, row.text || row.label),
      el('td', {class: 'number'}, row.probability.toFixed(3)),
      el('td', {class: 'wide'}, el('span', {class: 'share', style: `width: ${100 * row.probability}%`})))));
}

function continuing(model) {
  const {node, labelled} = field('textarea', 'text', {spellcheck: 'false'});
  const limit = field('input', 'tokens', {type: 'text', inputmode: 'numeric', value: '60'});
  const out = el('div', {class: 'panel answer', role: 'status', 'aria-live': 'polite'});
  let running = null;
  const button = el('button', {onclick: async () => {
    if (running) return running.abort();
    running = new AbortController();
    button.textContent = 'Stop';
    out.textContent = node.value;
    try {
      const body = {model, prompt: node.value, stream: true, max_tokens: Number(limit.node.value) || 60};
      for await (const choice of events(await ask('v1/completions', body, running.signal))) {
        out.append(choice.text);
      }
    } catch (error) {
      if (error.name !== 'AbortError') out.append(el('span', {class: 'problem'}, ' ' + error.message));
    }
    running = null;
    button.textContent = 'Continue';
  }}, 'Continue');
  return el('div', {class: 'stack'}, labelled, el('div', {class: 'row'}, button, limit.labelled), out,
      attending(model, () => ({text: out.textContent || node.value})));
}

function talking(model) {
  const messages = [];
  const log = el('div', {class: 'stack', role: 'log', 'aria-live': 'polite'});
  const {node, labelled} = field('input', 'message', {type: 'text', autocomplete: 'off'});
  const say = async event => {
    event.preventDefault();
    const content = node.value.trim();
    if (!content) return;
    node.value = '';
    messages.push({role: 'user', content});
    log.append(el('div', {class: 'panel said user text'}, content));
    const answer = el('div', {class: 'panel said text'});
    log.append(answer);
    try {
      const reply = await ask('v1/chat/completions', {model, messages, stream: true});
      for await (const choice of events(reply)) answer.append(choice.delta.content || '');
      messages.push({role: 'assistant', content: answer.textContent.trim()});
    } catch (error) {
      messages.pop();
      answer.append(el('span', {class: 'problem'}, error.message));
    }
  };
  const anew = el('button', {type: 'button', onclick: () => {
    messages.length = 0;
    log.replaceChildren();
  }}, 'New talk');
  return el('div', {class: 'stack'}, log, el('form', {class: 'stack', onsubmit: say}, labelled,
      el('div', {class: 'row'}, el('button', {}, 'Send'), anew)));
}

function answering(model) {
  const context = field('textarea', 'context', {spellcheck: 'false'});
  const part = typing('question', '', async (question, signal) => {
    const body = {model, context: context.node.value, question, n_best: 3};
    return shares((await (await ask('answer', body, signal)).json()).answers);
  });
  return el('div', {class: 'stack'}, context.labelled, part);
}

const parts = {
  translate: ['Translate', model => typing('text', 'Type to translate', async (q, signal) =>
      (await (await ask('translate', {model, q}, signal)).json()).translatedText,
      (node, out) => attending(model, () => ({text: node.value.split('\n')[0], answer: out.textContent.split('\n')[0]})))],
  complete: ['Continue', continuing],
  chat: ['Chat', talking],
  fill_mask: ['Fill masks', model => typing('text with <mask>', '', async (text, signal) => {
    const masks = (await (await ask('fill-mask', {model, text}, signal)).json()).masks[0];
    return el('div', {class: 'stack'}, ...masks.map(shares));
  }, node => attending(model, () => ({text: node.value})))],
  classify: ['Classify', model => typing('text', '', async (text, signal) =>
      shares((await (await ask('classify', {model, text}, signal)).json()).classes[0]),
      node => attending(model, () => ({text: node.value})))],
  answer: ['Answer', answering],
};

const main = el('main', {});

function show(models) {
  const choices = models.flatMap(model => model.abilities.filter(name => parts[name]).map(
      name => ({name: parts[name][0] + (models.length > 1 ? ' · ' + model.id : ''), make: () => parts[name][1](model.id)})));
  const place = el('section', {'aria-label': 'what the model does'});
  const select = index => place.replaceChildren(choices[index].make());
  const buttons = buttonGroup('what to do', choices.map((choice, i) => [i, choice.name]), 0, select);
  main.replaceChildren(el('div', {class: 'controls'}, buttons), place);
  if (choices.length) return select(0);
  main.replaceChildren(el('p', {}, 'These models answer programs only; /openapi.json says how.'));
}

async function begin() {
  try {
    show((await (await ask('v1/models')).json()).data);
  } catch (error) {
    const {node, labelled} = field('input', 'key', {type: 'password', autocomplete: 'off'});
    const open = event => { event.preventDefault(); key = node.value; begin(); };
    main.replaceChildren(el('form', {class: 'stack', onsubmit: open}, el('p', {class: 'problem', role: 'alert'},
        error.message), error.status === 401 ? labelled : null, el('button', {}, 'Open')));
  }
}

document.body.append(pageHeader('Tapestry', 'models of this server'), main);
setTheme();
begin();
