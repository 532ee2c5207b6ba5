#include "apps/commands/answers/restored_lines.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "apps/tasks/answers/unknown_words.h"
#include "core/base/error.h"

namespace tapestry {
namespace {

std::vector<SentencePart> parts_of_blocks(std::string_view text, SentenceSplitter& splitter) {
  std::vector<std::string_view> sentences;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view block = text.substr(begin, end - begin);
    for (const SentencePart& part : splitter.split(block)) sentences.push_back(part.text);
    begin = end + 1;
  }
  std::vector<SentencePart> parts;
  for (size_t i = 0; i < sentences.size(); ++i) {
    const char* const end = sentences[i].data() + sentences[i].size();
    const char* const next =
        i + 1 < sentences.size() ? sentences[i + 1].data() : text.data() + text.size();
    parts.push_back({sentences[i], {end, static_cast<size_t>(next - end)}});
  }
  return parts;
}

}  // namespace

void add_restored(CLI::App& app, RestoreArguments& arguments) {
  app.add_option(
         "--markup", arguments.markup,
         "xml | html: tags such as <x id=\"1\"/> are taken out of what the model reads, and "
         "put into the translation by its alignment, each once and byte for byte, entities "
         "too; html: entities are text, void elements need no end, code is left alone, and "
         "--split-sentences also parts blocks")
      ->check(CLI::IsMember({"xml", "html"}));
  app.add_flag("--copy-unknown", arguments.copy_unknown,
               "a word of the source with an unknown token stands, as it is, in the place of the "
               "word of the translation that is aligned with it");
}

RestoredLines::RestoredLines(const Translator& models, const RestoreArguments& arguments,
                             int64_t layer, int64_t batch_size)
    : models_(models),
      arguments_(arguments),
      options_{.copy_unknown = arguments.copy_unknown, .layer = layer, .batch_size = batch_size} {
  if (!wanted()) return;
  const Tokenizer& source = *models.tokenizers().source;
  if (!arguments.markup.empty() && models.config().task->needs_mask_piece) {
    fail(ErrorKind::kConfig, "[translate] --markup ", arguments.markup,
         " would take out words such as <mask> that these models read.");
  }
  if (arguments.copy_unknown && !has_unknown_tokens(source)) {
    fail(ErrorKind::kConfig,
         "[translate] --copy-unknown has no effect: the tokenizer of these models has no unknown "
         "tokens, it writes any character as bytes.");
  }
  source_attention(models.models(), {{}}, {{}}, layer, 1, models.rows());  // is it there?
}

std::vector<SentencePart> RestoredLines::read(std::string& line, SentenceSplitter* splitter,
                                              RestoredPart& part) const {
  std::vector<SentencePart> parts;
  if (wanted()) {
    const auto marked = std::make_shared<MarkedText>(
        arguments_.markup.empty()     ? without_markup(line)
        : arguments_.markup == "html" ? read_markup(line, MarkupFormat::kHtml)
                                      : read_markup(line, MarkupFormat::kXml));
    if (splitter == nullptr) std::ranges::replace(marked->text, '\n', ' ');
    part = {.marked = marked, .line = std::exchange(line, marked->text)};
  }
  if (splitter != nullptr) {
    parts = part.marked ? parts_of_blocks(line, *splitter) : splitter->split(line);
  }
  if (parts.empty()) parts.push_back({line, {}});
  return parts;
}

void RestoredLines::align(const std::vector<ToAlign>& parts) const {
  std::vector<PartToAlign> all;
  for (const ToAlign& one : parts) {
    for (const Hypothesis& translation : one.translations) {
      all.push_back({one.part->marked.get(), one.part->begin, &one.placed, translation.tokens});
    }
  }
  std::vector<AlignedText> aligned = align_units(models_, all, options_);
  auto next = aligned.begin();
  for (const ToAlign& one : parts) {
    for (size_t n = 0; n < one.translations.size(); ++n) {
      one.part->aligned.push_back(std::move(*next++));
    }
  }
}

std::optional<std::string> RestoredLines::join(const RestoredPart& part, const std::string& gap,
                                               bool ends, const TextOut& written) {
  joined_.append(part.aligned.empty() ? AlignedText{} : part.aligned[0], gap_);
  gap_ = gap;
  if (!ends) return std::nullopt;
  gap_.clear();
  return with_markup(*part.marked, std::exchange(joined_, {}), written);
}

}  // namespace tapestry
