// /translate_file and /download_file, as LibreTranslate's clients call them, for plain text.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "apps/commands/serve/endpoints.h"
#include "apps/commands/serve/http_error.h"
#include "apps/commands/serve/languages.h"
#include "apps/commands/serve/required_fields.h"
#include "data/files/utf8.h"

namespace tapestry {
namespace {

constexpr std::chrono::minutes kKept{30};
constexpr size_t kMostKept = 64 << 20;  // bytes
constexpr const char* kTextType = "text/plain; charset=utf-8";

// Translations that wait for their client. A name is 128 random bits: who knows it may read.
class KeptFiles {
 public:
  std::string add(std::string text) {
    std::random_device random;
    const std::string name =
        fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
    const std::lock_guard lock(mutex_);
    forget(text.size());
    bytes_ += text.size();
    files_.push_back({name, std::move(text), std::chrono::steady_clock::now() + kKept});
    return name;
  }
  std::optional<std::string> find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    forget(0);
    const auto found = std::ranges::find(files_, name, &File::name);
    if (found == files_.end()) return std::nullopt;
    return found->text;
  }

 private:
  struct File {
    std::string name, text;
    std::chrono::steady_clock::time_point end;
  };

  // The oldest, those whose time is over, and as many as `more` bytes need.
  void forget(size_t more) {
    const auto now = std::chrono::steady_clock::now();
    while (!files_.empty() && (files_.front().end <= now || bytes_ + more > kMostKept)) {
      bytes_ -= files_.front().text.size();
      files_.erase(files_.begin());
    }
  }

  std::mutex mutex_;
  std::vector<File> files_;  // the oldest first
  size_t bytes_ = 0;
};

KeptFiles& kept_files() {
  static KeptFiles files;
  return files;
}

// Some lines at a time: a file may have more of them than the queue has room for.
std::string translated_file(const Service& service, ServedModel& model, const std::string& text,
                            RequiredTexts* required, const CallEnd& end) {
  const std::vector<std::string> lines = lines_of_text(text);
  const int64_t at_once = std::clamp<int64_t>(service.options().max_queue / 4, 1, 64);
  SearchOptions options = model.config().generation;
  options.n_best = 1;
  const Service::Admitted admitted(service, std::min(at_once, std::ssize(lines)));
  std::string translated;
  for (int64_t first = 0; first < std::ssize(lines); first += at_once) {
    const auto begin = lines.begin() + first;
    const std::vector<std::string> some(begin,
                                        begin + std::min(at_once, std::ssize(lines) - first));
    for (const auto& found : model.translate(some, options, end, required)) {
      if (!found.empty()) translated += model.text_of(found[0]);
      translated += '\n';
    }
  }
  translated.pop_back();  // the lines stand between line feeds
  return translated;
}

Reply answer_file(const Service& service, const Call& call) {
  const std::string text = call.text("file");
  if (text.find('\0') != std::string::npos || find_invalid_utf8(text) != std::string::npos) {
    refuse(400, "the file must be plain text in UTF-8.");
  }
  const auto [held, detected] = translator_of(service, call, text.substr(0, 1000));
  ServedModel& model = *held;
  const std::unique_ptr<RequiredTexts> required = required_texts(model, call);
  std::string translated = translated_file(service, model, text, required.get(), call.end);
  if (call.is_true("inline")) return {.type = kTextType, .body = std::move(translated)};
  const std::string name = kept_files().add(std::move(translated));
  Json json = {{"translatedFileUrl", concat("http://", call.host, "/download_file?name=", name)}};
  if (required && required->any()) json["missing"] = required->missing();
  return json_reply(json);
}

Reply answer_download(const Service&, const Call& call) {
  std::optional<std::string> text = kept_files().find(call.text("name"));
  if (!text) refuse(404, "there is no such file, or no more: it is kept for 30 minutes.");
  return {.type = kTextType, .body = std::move(*text)};
}

}  // namespace

extern const Endpoint kFileEndpoint{
    "POST", "/translate_file", "Translate a file of plain text, line by line (as LibreTranslate)",
    with_required_fields(
        {{"file", FieldType::kFile, "the text; as multipart/form-data a file", true},
         {"source", FieldType::kText, "language, or auto"},
         {"target", FieldType::kText, "language"},
         {"inline", FieldType::kBoolean, "the answer is the text itself, not where to get it"},
         {"model", FieldType::kText, "name of a model, instead of languages"}}),
    answer_file};

extern const Endpoint kDownloadEndpoint{"GET",
                                        "/download_file",
                                        "A file that was translated",
                                        {{"name", FieldType::kText, "of the file", true}},
                                        answer_download,
                                        /*open=*/true};

}  // namespace tapestry
