#!/usr/bin/env python3
"""Attacks a running `tapestry serve` for a bounded time while one good client is served and checked.

    tests/serve_attack.py PORT [--seconds 60] [--kind slow idle broken cut oversize many keys bodies] [--key KEY]
                          [--pid PID] [--path /translate --body '{"q": "a b"}']

Standard library only. Prints memory, descriptors and threads of the process before and after, and
how the good client fared; exit 1 where it got a wrong answer or none, or the process died or grew.
"""
import argparse
import contextlib
import http.client
import json
import os
import random
import socket
import struct
import subprocess
import threading
import time


def state(pid):
    fields = dict(line.split(':', 1) for line in open(f'/proc/{pid}/status') if ':' in line)
    return {'rss_mib': int(fields['VmRSS'].split()[0]) // 1024, 'threads': int(fields['Threads']),
            'descriptors': len(os.listdir(f'/proc/{pid}/fd'))}


def owner_of(port):
    listing = subprocess.run(['ss', '-ltnpH', f'sport = :{port}'], capture_output=True, text=True).stdout
    return int(listing.split('pid=')[1].split(',')[0])


MOST_SECONDS = 5  # for an answer to the good client


class Good(threading.Thread):
    """Asks again and again, on connections of its own or on one; the answer must stay the same."""

    def __init__(self, options, until, keeps):
        super().__init__()
        self.options, self.until, self.keeps = options, until, keeps
        self.times, self.problems = [], []

    def run(self):
        headers = {'Content-Type': 'application/json'}
        if self.options.key:
            headers['Authorization'] = 'Bearer ' + self.options.key
        expected, connection = None, None
        while time.monotonic() < self.until:
            begin = time.monotonic()
            try:
                if connection is None:
                    connection = http.client.HTTPConnection('127.0.0.1', self.options.port, timeout=30)
                connection.request('POST', self.options.path, self.options.body, headers)
                reply = connection.getresponse()
                answer = (reply.status, reply.read())
                expected = expected or answer
                if answer != expected or answer[0] != 200:
                    self.problems.append(repr(answer)[:200])
                if not self.keeps:
                    connection.close()
                    connection = None
            except OSError as error:
                self.problems.append(repr(error))
                connection = None
            except http.client.HTTPException as error:
                # A kept connection may be closed between two requests; clients ask again.
                if not self.keeps:
                    self.problems.append(repr(error))
                connection = None
            self.times.append(time.monotonic() - begin)
            time.sleep(0.02)


def opened(port):
    client = socket.create_connection(('127.0.0.1', port), timeout=5)
    return client


def quietly(work):
    try:
        work()
    except OSError:
        pass


HEAD = 'POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n'


def slow(port, until, count=600):
    """A byte each second, on many connections."""
    clients = []
    text = (HEAD + 'Content-Length: 20\r\n\r\n{"q": "a b c d e f"}').encode()
    while time.monotonic() < until:
        while len(clients) < count and time.monotonic() < until:
            quietly(lambda: clients.append([opened(port), 0]))
        for one in list(clients):
            try:
                one[0].send(text[one[1] % len(text):][:1])
                one[1] += 1
            except OSError:
                one[0].close()
                clients.remove(one)
        time.sleep(1)
    for one in clients:
        one[0].close()


def idle(port, until, count=600):
    """Connections that say nothing, and readers that take no answers."""
    clients = []
    while time.monotonic() < until:
        while len(clients) < count and time.monotonic() < until:
            def one():
                client = opened(port)
                if len(clients) % 2:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
                    client.send(b'GET / HTTP/1.1\r\nHost: a\r\n\r\n' * 8)
                clients.append(client)
            quietly(one)
        time.sleep(1)
    for client in clients:
        client.close()


BROKEN = [b'\r\n\r\n', b'nonsense\r\n\r\n', b'GET\r\n\r\n', b'GET / HTTP/9.9\r\n\r\n', b'\x00' * 100 + b'\r\n\r\n',
          b'POST /translate HTTP/1.1\r\nContent-Length: -1\r\n\r\n',
          b'POST /translate HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n',
          b'POST /translate HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd',
          b'POST /translate HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
          b'POST /translate HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n',
          b'POST /translate HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n',
          b'POST /translate HTTP/1.1\r\nContent-Length: 2\r\nContent-Encoding: gzip\r\n\r\nab',
          b'POST /translate HTTP/1.1\r\nContent-Type: multipart/form-data\r\nContent-Length: 2\r\n\r\nab',
          b'GET / HTTP/1.1\r\nRange: bytes=9-1,-5,0-\r\n\r\n',
          b'GET /' + b'a' * 9000 + b' HTTP/1.1\r\n\r\n', b'GET / HTTP/1.1\r\n' + b'a: b\r\n' * 20000]


def broken(port, until):
    rng = random.Random(1)
    whole = (HEAD + 'Content-Length: 10\r\n\r\n{"q": "a"}').encode()
    while time.monotonic() < until:
        text = bytearray(rng.choice(BROKEN) if rng.random() < 0.5 else whole)
        if rng.random() < 0.5:
            for _ in range(rng.randint(1, 8)):
                text[rng.randrange(len(text))] = rng.randrange(256)

        def one():
            with opened(port) as client:
                client.settimeout(0.2)
                client.sendall(text)
                client.recv(4096)
        quietly(one)


def cut(port, until):
    """Ends with a reset, in the middle of a request or of an answer."""
    rng = random.Random(2)
    streams = (b'POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 47\r\n\r\n'
               b'{"prompt": "a", "stream": true, "max_tokens":9}')
    whole = (HEAD + 'Content-Length: 10\r\n\r\n{"q": "a"}').encode()
    while time.monotonic() < until:
        def one():
            text = rng.choice([streams, whole])
            client = opened(port)
            client.send(text if rng.random() < 0.6 else text[:rng.randrange(len(text))])
            time.sleep(rng.random() * 0.01)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            client.close()
        quietly(one)


def oversize(port, until):
    block = b'a' * (1 << 16)
    while time.monotonic() < until:
        def said():
            with opened(port) as client:
                client.sendall((HEAD + 'Content-Length: 999999999\r\n\r\n').encode())
                for _ in range(64):
                    client.sendall(block)

        def chunked():
            with opened(port) as client:
                client.sendall((HEAD + 'Transfer-Encoding: chunked\r\n\r\n').encode())
                for _ in range(64):
                    client.sendall(b'10000\r\n' + block + b'\r\n')

        def tiny():
            with opened(port) as client:
                client.sendall((HEAD + 'Transfer-Encoding: chunked\r\n\r\n').encode())
                for _ in range(500):
                    client.sendall(b'1\r\na\r\n' * 1000)
        for work in (said, chunked, tiny):
            quietly(work)


def many(port, until, count=10000):
    """Connections as fast as they go, up to so many at a time."""
    clients = []
    while time.monotonic() < until:
        def one():
            client = opened(port)
            client.send(b'POST /translate HTTP/1.1\r\nHost: a\r\n')
            clients.append(client)
        quietly(one)
        if len(clients) >= count:
            for client in clients[:count // 2]:
                client.close()
            del clients[:count // 2]
    for client in clients:
        client.close()


def keys(port, until, count=1000):
    for i in range(count):
        if time.monotonic() > until:
            return

        def one():
            with opened(port) as client:
                body = '{"q": "a"}'
                client.send((HEAD + f'Authorization: Bearer wrong{i}\r\nContent-Length: {len(body)}\r\n\r\n{body}').encode())
                client.recv(4096)
        quietly(one)


ODD = [None, True, -1, 0, 1, 2, 127, 10**9, 2**63, -2**63, 2**64, 1e308, -0.5, '', 'a', '\x00', '\ud83d\ude00', 'ba ' * 200, [], {}, [[]],
       [1], [-1], [2**40], ['a', 'b'], [''], ['a'] * 300, [['a']], [{}], {'a': [{}]}, [{'role': 'user'}], [{'role': 'user', 'content': 'a'}],
       [{'role': 3, 'content': [{'type': 3}]}], [{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}]}],
       [{'role': 'user', 'content': 'a', 'tool_calls': [[[]]]}], {'include_usage': 3}, 'auto', 'text', 'de']
FAULTS = []  # answers that say the server is to blame


def bodies(port, until):
    """Fields of every endpoint with odd values: what is refused must be refused as the client's fault."""
    rng = random.Random(3)
    with _closing(port) as connection:
        connection.request('GET', '/openapi.json')
        paths = json.loads(connection.getresponse().read())['paths']
        connection.request('GET', '/v1/models')
        models = json.loads(connection.getresponse().read())['data']
    talks = next((model['id'] for model in models if 'chat' in model['abilities']), None)
    asked = [(path, list(one['post']['requestBody']['content']['application/json']['schema']['properties'].items()))
             for path, one in paths.items() if 'post' in one]
    while time.monotonic() < until:
        path, fields = rng.choice(asked)
        body = {}
        odd = [name for name, _ in rng.sample(fields, rng.randint(0, min(3, len(fields))))]
        for name, schema in fields:
            if name in odd:
                body[name] = rng.choice(ODD)
            elif schema.get('type') == 'string' or 'oneOf' in schema:
                body[name] = rng.choice(['ba ce', 'ba <mask>', ['ba', 'ce di']]) if name not in ('model', 'format', 'source', 'target') else None
        if path == '/v1/chat/completions' and 'messages' not in odd:
            body.update(messages=[{'role': 'user', 'content': 'ba'}], model=talks)
        for name in ('max_tokens', 'max_completion_tokens'):
            if isinstance(body.get(name), int) and body[name] > 8:
                body[name] = 8
        if isinstance(body.get('n'), int) and body['n'] > 4:
            body['n'] = 2
        text = json.dumps(body)
        try:
            with _closing(port) as connection:
                connection.request('POST', path, text, {'Content-Type': 'application/json'})
                reply = connection.getresponse()
                answer = reply.read()
                if reply.status in (500, 502) or b'"code":500' in answer:
                    FAULTS.append((path, text[:400], answer[:200]))
        except (OSError, http.client.HTTPException):
            pass  # its connection made room for others


def _closing(port):
    return contextlib.closing(http.client.HTTPConnection('127.0.0.1', port, timeout=60))


KINDS = {work.__name__: work for work in (slow, idle, broken, cut, oversize, many, keys, bodies)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('port', type=int)
    parser.add_argument('--seconds', type=float, default=60)
    parser.add_argument('--kind', nargs='*', choices=KINDS, default=list(KINDS))
    parser.add_argument('--key', default='')
    parser.add_argument('--pid', type=int)
    parser.add_argument('--path', default='/translate')
    parser.add_argument('--body', default='{"q": "a b"}')
    options = parser.parse_args()
    json.loads(options.body)
    pid = options.pid or owner_of(options.port)
    warm = Good(options, time.monotonic() + 1, True)
    warm.run()
    before = state(pid)
    print('before', before, flush=True)
    until = time.monotonic() + options.seconds
    attackers = [threading.Thread(target=KINDS[kind], args=(options.port, until)) for kind in options.kind]
    for attacker in attackers:
        attacker.start()
    time.sleep(min(2, options.seconds / 4))
    good = [Good(options, until, keeps) for keeps in (False, True)]
    for client in good:
        client.start()
    peak = dict(before)
    while any(client.is_alive() for client in good):
        time.sleep(0.5)
        peak = {name: max(value, peak[name]) for name, value in state(pid).items()}
    for thread in attackers + good:
        thread.join()
    time.sleep(13)  # idle connections are closed by then
    after = state(pid)
    print('peak  ', peak)
    print('after ', after)
    failed = False
    for client, name in zip(good, ('one connection each', 'one connection for all')):
        times = sorted(client.times) or [float('inf')]
        print(f'good client, {name}: {len(client.times)} answers, {len(client.problems)} wrong, median '
              f'{1e3 * times[len(times) // 2]:.1f} ms, worst {1e3 * times[-1]:.0f} ms', client.problems[:3])
        failed = failed or bool(client.problems) or times[-1] > MOST_SECONDS
    for fault in FAULTS[:10]:
        print('to blame:', *fault)
    failed = failed or bool(FAULTS)
    grown = after['rss_mib'] > before['rss_mib'] + 64 or after['descriptors'] > before['descriptors'] + 8
    print('FAILED' if failed else 'served', '- grown' if grown else '- no growth')
    return 1 if failed or grown else 0


if __name__ == '__main__':
    raise SystemExit(main())
