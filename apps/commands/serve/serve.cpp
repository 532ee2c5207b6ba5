// tapestry serve: models that others call by HTTP.
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <thread>

#include "apps/commands/command.h"
#include "apps/commands/number_bounds.h"
#include "apps/commands/serve/server.h"
#include "apps/run/signals.h"
#include "core/cpu/parallel.h"

namespace tapestry {
namespace {

std::atomic<bool> reads_again{false};  // SIGHUP came
static_assert(std::atomic<bool>::is_always_lock_free);

int run_serve(const ServeArguments& arguments) {
  install_signal_handlers();
  std::signal(SIGHUP, [](int) { reads_again = true; });
  set_num_threads(arguments.compute.threads);
  Service service(arguments);
  Server server(service);
  std::cout << "http://" << arguments.host << ':' << server.port() << std::endl;
  std::atomic<bool> done{false};
  std::thread watch([&] {
    while (pending_signal() == 0 && !done.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (reads_again.exchange(false)) {
        service.models().reload(
            [](const std::string& line) { std::cerr << concat("SIGHUP: ", line, '\n'); });
      }
    }
    if (pending_signal() != 0) {
      std::cerr << name_of_signal(pending_signal()) << ": the answers that run are finished\n";
    }
    server.stop();
  });
  server.run();
  done = true;
  watch.join();
  return 0;
}

void add_limits(CLI::App& app, ServeArguments& arguments) {
  constexpr const char* kGroup = "Limits";
  app.add_option("--max-body", arguments.max_body, "bytes of a request; more get 413")
      ->check(number<int64_t>(between(1, 1 << 30)))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--max-queue", arguments.max_queue,
                 "texts that are answered or wait; a request with more gets 429")
      ->check(number<int64_t>(between(1, 1 << 20)))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--max-tokens", arguments.max_tokens,
                 "tokens of a continuation; a request for more gets 400")
      ->check(number<int64_t>(between(1, 1 << 20)))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--max-connections", arguments.max_connections,
                 "open connections; for a new one the slowest is closed")
      ->check(number<int64_t>(between(1, 1 << 16)))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--read-timeout", arguments.read_timeout,
                 "seconds in which a request must arrive (else 408), and of idle connections")
      ->check(number<double>(between(0.001, 86400)))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--timeout", arguments.timeout, "seconds of an answer; a longer one gets 503")
      ->check(number<double>(between(0.001, 86400)))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--grace", arguments.grace,
                 "seconds that running answers have after SIGTERM or SIGINT")
      ->check(number<double>(between(0, 86400)))
      ->capture_default_str()
      ->group(kGroup);
}

void add_serve(CLI::App& app, ServeArguments& arguments) {
  app.add_option("--model", arguments.models,
                 "NAME=DIR, a checkpoint or run folder; may be repeated. A model named like de-en "
                 "translates from German to English")
      ->required();
  add_format(app, arguments.format);
  add_compute(app, arguments.compute);
  app.add_option("--host", arguments.host, "address to listen on; 0.0.0.0: all of this machine's")
      ->capture_default_str();
  app.add_option("--port", arguments.port, "0: a free one, which is printed")
      ->check(number<int>(between(0, 65535)))
      ->capture_default_str();
  app.add_option("--api-key-file", arguments.api_key_file,
                 "file with a key in each line, one of which each request must have");
  app.add_option(
      "--memory", arguments.memory,
      "bytes of models' weights, as in 4GB: they are loaded when they are asked for, and "
      "freed for others, those first that were not used for longest; without it all are "
      "loaded at once");
  app.add_option("--cors", arguments.cors,
                 "an origin whose pages may ask, as in https://example.org; *: any");
  app.add_option("--batch-size", arguments.batch_size,
                 "texts that a thread searches at a time; others join as soon as some are done")
      ->check(number<int64_t>(between(1, 4096)))
      ->capture_default_str();
  add_limits(app, arguments);
}

}  // namespace

extern const Command kServe(
    "serve",
    "Answer requests over HTTP: a page, LibreTranslate's and OpenAI's interfaces (/openapi.json)",
    add_serve, run_serve);

}  // namespace tapestry
