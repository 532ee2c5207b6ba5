// tapestry serve: models that others call by HTTP.
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <thread>

#include "apps/commands/command.h"
#include "apps/commands/options.h"
#include "apps/commands/serve/server.h"
#include "apps/run/signals.h"
#include "core/cpu/parallel.h"

namespace tapestry {
namespace {

std::atomic<bool> reads_again{false};  // SIGHUP came
static_assert(std::atomic<bool>::is_always_lock_free);

int run_serve(const ServeArguments& arguments) {
  const ServeOptions options = read_serve_options(arguments);
  install_signal_handlers();
  std::signal(SIGHUP, [](int) { reads_again = true; });
  set_num_threads(options.threads);
  Service service(options);
  Server server(service);
  std::cout << "http://" << options.host << ':' << server.port() << std::endl;
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

void add_serve(CLI::App& app, ServeArguments& arguments) {
  app.add_option("config", arguments.words,
                 "YAML file with the section serve, then serve.key=value, winning over the file");
  app.add_option("--model", arguments.models,
                 "NAME=DIR, a checkpoint or run folder, in place of the file's models; may be "
                 "repeated. A model named like de-en translates from German to English")
      ->allow_extra_args(false);
  for (const ConfigKey& key : serve_keys()) {
    if (key.type.starts_with("section") || key.name.starts_with("serve.models.")) continue;
    add_key_option(app, arguments.options, key);
  }
}

}  // namespace

extern const Command kServe(
    "serve",
    "Answer requests over HTTP: a page, LibreTranslate's and OpenAI's interfaces (/openapi.json)",
    add_serve, run_serve);

}  // namespace tapestry
