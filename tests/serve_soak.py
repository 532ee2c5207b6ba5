#!/usr/bin/env python3
"""A mixed load on a running `tapestry serve` for hours: its memory, descriptors and threads must not grow.

    tests/serve_soak.py PORT --translate NAME --complete NAME [--minutes 120] [--clients 6] [--pause 0.2]
                        [--texts FILE] [--out soak.tsv]

Each client asks for translations of one line or of several, with n-best, glossaries, tags and draws, for
completions whole and streamed, for scores, and now and then for what is refused or cut off in the middle; its
lines are those of FILE in turn. Standard library only. Exit 1 where an answer had an unexpected status, or the
last third of the time needed more than the second one.
"""
import argparse
import collections
import json
import http.client
import os
import random
import socket
import statistics
import subprocess
import threading
import time


def state(pid):
    fields = dict(line.split(':', 1) for line in open(f'/proc/{pid}/status') if ':' in line)
    return [int(fields['VmRSS'].split()[0]), len(os.listdir(f'/proc/{pid}/fd')), int(fields['Threads'])]


class Client(threading.Thread):
    def __init__(self, options, lines, seed, until):
        super().__init__(daemon=True)
        self.options, self.lines, self.until = options, lines, until
        self.random = random.Random(seed)
        self.answers, self.problems = collections.Counter(), []

    def line(self):
        return self.random.choice(self.lines)

    def requests(self):
        translate, complete = self.options.translate, self.options.complete
        line = self.line()
        yield '/translate', {'model': translate, 'q': line}, 200
        yield '/translate', {'model': translate, 'q': [self.line() for _ in range(self.random.randint(1, 12))]}, 200
        yield '/translate', {'model': translate, 'q': line, 'alternatives': 2, 'alignments': True}, 200
        yield '/translate', {'model': translate, 'q': f'<p>{line} <b>{line}</b></p>', 'format': 'html'}, 200
        yield '/translate', {'model': translate, 'q': line, 'terms': {line.split()[0]: 'Mann'}, 'keep': ['numbers']}, 200
        yield '/score', {'model': translate, 'text': line, 'source': line}, 200
        body = {'model': complete, 'prompt': line[:20], 'max_tokens': self.random.randint(1, 60), 'seed': self.random.randint(0, 99)}
        yield '/v1/completions', body, 200
        yield '/v1/completions', {**body, 'stream': True, 'logprobs': 2}, 200
        yield '/v1/completions', {**body, 'max_tokens': 10**9}, 400
        yield '/translate', {'model': 'nobody', 'q': line}, 404
        yield '/translate', {'model': translate, 'q': 7}, 400

    def ask(self, path, body, status):
        connection = http.client.HTTPConnection('127.0.0.1', self.options.port, timeout=120)
        connection.request('POST', path, json.dumps(body), {'Content-Type': 'application/json'})
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        self.answers[f'{path} {reply.status}'] += 1
        if reply.status != status:
            self.problems.append(f'{path} {body} {reply.status} {text[:200]}')

    def cut(self):
        body = json.dumps({'model': self.options.complete, 'prompt': self.line(), 'max_tokens': 60, 'stream': True})
        with socket.create_connection(('127.0.0.1', self.options.port)) as lost:
            lost.sendall((f'POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n'
                          f'Content-Length: {len(body)}\r\n\r\n' + body).encode())
            lost.recv(200)
        self.answers['cut'] += 1

    def run(self):
        while time.monotonic() < self.until:
            for path, body, status in self.requests():
                try:
                    self.ask(path, body, status)
                except OSError as problem:
                    self.problems.append(f'{path}: {problem!r}')
                time.sleep(self.options.pause)
            self.cut()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument('port', type=int)
    arguments.add_argument('--translate', required=True)
    arguments.add_argument('--complete', required=True)
    arguments.add_argument('--minutes', type=float, default=120)
    arguments.add_argument('--clients', type=int, default=6)
    arguments.add_argument('--pause', type=float, default=0.2)
    arguments.add_argument('--texts')
    arguments.add_argument('--out', default='soak.tsv')
    options = arguments.parse_args()
    lines = [line.strip() for line in open(options.texts) if line.strip()] if options.texts else ['A man sleeps .']
    listing = subprocess.run(['ss', '-ltnpH', f'sport = :{options.port}'], capture_output=True, text=True).stdout
    pid = int(listing.split('pid=')[1].split(',')[0])
    begin = time.monotonic()
    until = begin + 60 * options.minutes
    clients = [Client(options, lines, seed, until) for seed in range(options.clients)]
    for client in clients:
        client.start()
    rows = []
    with open(options.out, 'w') as out:
        out.write('second\tresident_kB\tdescriptors\tthreads\tanswers\n')
        while time.monotonic() < until:
            time.sleep(10)
            rows.append(state(pid))
            answers = sum(sum(client.answers.values()) for client in clients)
            out.write('\t'.join(map(str, [int(time.monotonic() - begin), *rows[-1], answers])) + '\n')
            out.flush()
    for client in clients:
        client.join(150)
    answers = sum((client.answers for client in clients), collections.Counter())
    problems = [problem for client in clients for problem in client.problems]
    grew = []
    third = len(rows) // 3
    for column, name in enumerate(['resident_kB', 'descriptors', 'threads']):
        early = statistics.median(row[column] for row in rows[third:2 * third])
        late = statistics.median(row[column] for row in rows[2 * third:])
        if late > 1.02 * early + (1024 if column == 0 else 1):
            grew.append(f'{name} grew from {early} to {late}')
    print(json.dumps({'answers': dict(answers), 'first': rows[0], 'second third': rows[third], 'last': rows[-1],
                      'most': [max(row[column] for row in rows) for column in range(3)]}, indent=1))
    for problem in problems[:20] + grew:
        print(problem)
    print(f'{len(problems)} problems,', 'GREW' if grew else 'flat')
    return 1 if problems or grew else 0


if __name__ == '__main__':
    raise SystemExit(main())
