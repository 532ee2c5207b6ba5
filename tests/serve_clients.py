#!/usr/bin/env python3
"""`tapestry serve` as others' clients see it: openai, libretranslatepy, lm-eval (local-completions), curl.

    tests/serve_clients.py [URL=http://127.0.0.1:8080] [HF=FOLDER]

HF is the first causal model as `tapestry export` writes it: lm-eval counts the tokens of its choices with
the tokenizer in it; without the folder these are skipped.

Installs the clients into build/clients (a venv of its own) at the first run; those that no registry
gives are skipped with a word. The server may have any models: what none of them can do is skipped, too.
Each line says what was asked and what came; exit 1 if a client failed.
"""
import json
import os
import subprocess
import sys
import tempfile
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, 'build', 'clients')
PYTHON = os.path.join(VENV, 'bin', 'python')
PACKAGES = {'openai': ['openai'], 'libretranslatepy': ['libretranslatepy'], 'lm_eval': ['lm-eval[api]', 'transformers', 'sentencepiece', 'protobuf', 'tiktoken']}
TEXT = 'ba ce di'


def installed(module):
    if not os.path.exists(PYTHON):
        subprocess.run([sys.executable, '-m', 'venv', VENV], check=True)
    if subprocess.run([PYTHON, '-c', f'import {module}'], capture_output=True).returncode == 0:
        return True
    return subprocess.run([PYTHON, '-m', 'pip', 'install', '-q', *PACKAGES[module]],
                          capture_output=True).returncode == 0


OPENAI = '''
import sys, openai
url, complete, chat, embed, text = sys.argv[1:]
client = openai.OpenAI(base_url=url + '/v1', api_key='none')
print('models:', [model.id for model in client.models.list()])
if complete:
    whole = client.completions.create(model=complete, prompt=text, max_tokens=6, temperature=0.7, seed=3, logprobs=2)
    parts = client.completions.create(model=complete, prompt=text, max_tokens=6, temperature=0.7, seed=3, stream=True)
    streamed = ''.join(part.choices[0].text for part in parts)
    assert streamed == whole.choices[0].text, (streamed, whole)
    assert len(whole.choices[0].logprobs.top_logprobs[0]) >= 2
    print('completions:', repr(streamed), whole.usage.total_tokens, 'tokens, streamed the same')
if chat:
    messages = [{'role': 'user', 'content': text}]
    whole = client.chat.completions.create(model=chat, messages=messages, max_tokens=5, seed=3, temperature=1,
                                           logprobs=True, top_logprobs=2)
    parts = client.chat.completions.create(model=chat, messages=messages, max_tokens=5, seed=3, temperature=1, stream=True)
    streamed = ''.join(part.choices[0].delta.content or '' for part in parts)
    assert streamed.strip() == whole.choices[0].message.content, (streamed, whole)
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    print('chat:', repr(streamed), 'streamed the same')
if embed:
    vectors = client.embeddings.create(model=embed, input=[text, text + ' fo'])
    print('embeddings:', len(vectors.data), 'of', len(vectors.data[0].embedding))
try:
    client.completions.create(model='none', prompt=text)
except openai.NotFoundError as error:
    print('an error as the client knows it:', error.body['message'])
'''

LIBRETRANSLATE = '''
import os, sys, tempfile, urllib.request
from libretranslatepy import LibreTranslateAPI
url, text = sys.argv[1:]
client = LibreTranslateAPI(url + '/')
print('languages:', client.languages())
print('translate:', repr(client.translate(text, 'auto', 'en')))
try:
    print('detect:', client.detect(text))
except Exception as error:
    print('detect:', error)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, 'a.txt')
    open(path, 'w').write(text + '\\n' + text + '\\n')
    if not hasattr(client, 'translate_file'):
        sys.exit()
    there = client.translate_file(path, 'auto', 'en')
    print('translate_file:', there, urllib.request.urlopen(there).read())
'''

HARNESS = '''
import json, sys
import lm_eval
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.api.instance import Instance
url, model, text = sys.argv[1:]
served = LocalCompletionsAPI(base_url=url + '/v1/completions', model=model, tokenizer_backend=None,
                             tokenized_requests=False, max_length=1024, max_gen_toks=4, num_concurrent=1)
asked = [Instance('generate_until', {}, (text, {'until': ['.'], 'max_gen_toks': 4}), 0)]
print('generate_until:', served.generate_until(asked))
'''


def python(program, *arguments):
    done = subprocess.run([PYTHON, '-c', program, *arguments], capture_output=True, text=True)
    for line in done.stdout.splitlines():
        print('  ' + line)
    if done.returncode:
        print('  FAILED: ' + done.stderr.strip()[-1500:])
    return done.returncode == 0


def lm_eval(url, model, tokenizer):
    """A small task of log-likelihoods, as the harness asks for them: tokens, echo, log-probabilities."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [{'context': TEXT[:5], 'right': 0, 'choices': [' di', ' fo']}] * 4
        data = os.path.join(folder, 'data.jsonl')
        with open(data, 'w') as out:
            out.writelines(json.dumps(line) + '\n' for line in lines)
        task = {'task': 'tiny', 'dataset_path': 'json', 'dataset_kwargs': {'data_files': {'test': data}},
                'test_split': 'test', 'output_type': 'multiple_choice', 'doc_to_text': '{{context}}',
                'doc_to_target': '{{right}}', 'doc_to_choice': '{{choices}}', 'target_delimiter': '',
                'metric_list': [{'metric': 'acc'}]}
        with open(os.path.join(folder, 'tiny.yaml'), 'w') as out:
            json.dump(task, out)
        done = subprocess.run(
            [PYTHON, '-m', 'lm_eval', 'run', '--model', 'local-completions', '--include_path', folder, '--tasks', 'tiny',
             '--model_args', f'model={model},base_url={url}/v1/completions,num_concurrent=1,max_length=512,'
             f'tokenizer={tokenizer},tokenizer_backend=huggingface'],
            capture_output=True, text=True, env=dict(os.environ, HF_HUB_OFFLINE='1', HF_DATASETS_OFFLINE='1'))
        table = [line for line in done.stdout.splitlines() if '|' in line]
        for line in table:
            print('  ' + line)
        return done.returncode == 0 and bool(table), done.stderr.strip()[-600:]


def curl(*arguments):
    done = subprocess.run(['curl', '-sS', '--fail-with-body', *arguments], capture_output=True, text=True)
    print('  curl ' + ' '.join(arguments))
    print('    ' + done.stdout.strip()[:300].replace('\n', '\n    '))
    return done.returncode == 0


def main():
    url = sys.argv[1] if len(sys.argv) > 1 else 'http://127.0.0.1:8080'
    tokenizer = sys.argv[2] if len(sys.argv) > 2 else ''
    with urllib.request.urlopen(url + '/v1/models') as reply:
        models = json.load(reply)['data']

    def first(ability):
        return next((model['id'] for model in models if ability in model['abilities']), '')

    failed = []
    print('curl:')
    if first('translate') and not curl(url + '/translate', '-d', json.dumps({'q': TEXT, 'alternatives': 1, 'alignments': True})):
        failed.append('curl translate')
    if first('complete') and not curl(url + '/v1/completions', '-d', json.dumps({'prompt': TEXT, 'max_tokens': 4, 'stream': True})):
        failed.append('curl completions')
    curl(url + '/health')
    for name, module in (('openai', 'openai'), ('libretranslatepy', 'libretranslatepy'), ('lm-eval', 'lm_eval')):
        print(name + ':')
        if not installed(module):
            print('  skipped: no registry gives it')
        elif module == 'openai':
            if not python(OPENAI, url, first('complete'), first('chat'), first('embed'), TEXT):
                failed.append(name)
        elif module == 'libretranslatepy':
            if first('translate') and not python(LIBRETRANSLATE, url, TEXT):
                failed.append(name)
        elif first('complete'):
            if not python(HARNESS, url, first('complete'), TEXT):
                failed.append(name + ' generate')
            if not tokenizer:
                print('  choices: skipped, no folder with a tokenizer was given')
                continue
            fine, words = lm_eval(url, first('complete'), tokenizer)
            if not fine:
                print('  FAILED: ' + words)
                failed.append(name + ' choices')
    print('FAILED: ' + ', '.join(failed) if failed else 'all clients were served')
    return 1 if failed else 0


if __name__ == '__main__':
    raise SystemExit(main())
