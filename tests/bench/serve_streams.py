#!/usr/bin/env python3
"""Tokens/s of several streams of a causal model behind `tapestry serve` over those of one stream, in turn.

    tests/bench/serve_streams.py PORT MODEL [--streams 8] [--tokens 64] [--rounds 5]

Standard library only. Each stream is a client of its own that draws from the same prompt with another seed.
"""
import argparse
import http.client
import json
import statistics
import threading
import time


def stream(options, seed, tokens):
    connection = http.client.HTTPConnection('127.0.0.1', options.port, timeout=600)
    body = {'model': options.model, 'prompt': 'First Citizen: we are', 'max_tokens': options.tokens, 'seed': seed,
            'stream': True, 'stream_options': {'include_usage': True}}
    connection.request('POST', '/v1/completions', json.dumps(body), {'Content-Type': 'application/json'})
    events = [line for line in connection.getresponse().read().decode().split('\n') if line.startswith('data: {')]
    tokens.append(json.loads(events[-1][len('data: '):])['usage']['completion_tokens'])


def tokens_per_s(options, streams):
    tokens, begin = [], time.monotonic()
    threads = [threading.Thread(target=stream, args=(options, seed, tokens)) for seed in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(tokens) / (time.monotonic() - begin)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument('port', type=int)
    arguments.add_argument('model')
    arguments.add_argument('--streams', type=int, default=8)
    arguments.add_argument('--tokens', type=int, default=64)
    arguments.add_argument('--rounds', type=int, default=5)
    options = arguments.parse_args()
    tokens_per_s(options, options.streams)  # the first answers wait for memory
    ratios = []
    for _ in range(options.rounds):
        one, several = tokens_per_s(options, 1), tokens_per_s(options, options.streams)
        ratios.append(several / one)
        print(f'one {one:.1f}, {options.streams} streams {several:.1f} tokens/s: {ratios[-1]:.2f}', flush=True)
    print(f'median {statistics.median(ratios):.2f}')


if __name__ == '__main__':
    main()
