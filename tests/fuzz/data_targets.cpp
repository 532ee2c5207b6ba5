// Readers of data: pictures, compressed files, tables, questions, dictionaries, token caches.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "data/chat/chat_template.h"
#include "data/corpora/corpus.h"
#include "data/corpora/token_table.h"
#include "data/examples/points.h"
#include "data/examples/questions.h"
#include "data/files/files.h"
#include "data/files/text.h"
#include "data/files/unpacked_file.h"
#include "data/images/images.h"
#include "data/n_best/n_best_file.h"
#include "data/parquet/rows.h"
#include "tests/data/files/compressed_files.h"
#include "tests/data/images/image_files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/paths.h"

namespace tapestry {
namespace {

using Seeds = std::vector<std::string>;

const std::string kText =
    "A dog runs.\nTwo men \xe2\x80\x93 one old \xe2\x80\x93 wait.\r\n\n%\nlast line";

// ---- Pictures.

TestPicture picture(int channels) {
  TestPicture made{7, 9, channels, {}};
  for (int i = 0; i < 63 * channels; ++i) made.pixels.push_back(static_cast<uint8_t>(37 * i));
  return made;
}

Seeds pnm_seeds() { return {pnm_file(picture(1)), pnm_file(picture(3)), "P5#a\n2 1\n255\nab"}; }
Seeds png_seeds() {
  return {png_file(picture(1)), png_file(picture(2)), png_file(picture(3)), png_file(picture(4))};
}
Seeds jpeg_seeds() {
  return {jpeg_file(picture(1)), jpeg_file(picture(3)), jpeg_file(picture(4)),
          jpeg_file(picture(3), true)};
}

void read_picture(std::string_view bytes) {
  ImageSize size;
  const std::vector<uint8_t> pixels = read_image(fuzzed_file(bytes), size);
  check(std::ssize(pixels) == size.bytes(), "fuzz", "pixels are missing.");
}

Seeds idx_seeds() {
  const std::string images = idx_file({3, 2, 4}, std::vector<uint8_t>(24, 7));
  return {images, gzip(images), idx_file({3, 1, 2, 3}, std::vector<uint8_t>(18, 1))};
}
void read_idx(std::string_view bytes) {
  CorpusSpec spec;
  spec.images = fuzzed_file(bytes);
  spec.labels = fuzzed_file(idx_file({3}, {0, 1, 2}), "labels");
  load_images({spec});
}

Seeds label_seeds() { return {idx_file({3}, {0, 1, 2}), gzip(idx_file({3}, {2, 1, 0}))}; }
void read_labels(std::string_view bytes) {
  CorpusSpec spec;
  spec.images = fuzzed_file(idx_file({3, 1, 1}, {0, 1, 2}), "images");
  spec.labels = fuzzed_file(bytes);
  load_images({spec});
}

Seeds image_list_seeds() { return {"a\tpicture\nb\tpicture\n\nc\tpicture\n"}; }
void read_image_list(std::string_view bytes) {
  fuzzed_file(pnm_file(picture(1)), "picture");
  CorpusSpec spec;
  spec.images = fuzzed_file(bytes);
  load_images({spec});
}

// ---- Texts.

Seeds compressed_seeds() {
  return {gzip(kText), zstd(kText), xz(kText), bzip2(kText), gzip(kText) + gzip(kText)};
}
void read_compressed(std::string_view bytes) {
  LineReader lines(fuzzed_file(bytes));
  for (std::string line; lines.next(line);) {
  }
}

void read_all(const CorpusSpec& spec) {
  const auto reader = open_corpus(spec);
  for (TextPair pair; reader->next(pair);) {
  }
}

Seeds text_seeds() { return {kText, "\xef\xbb\xbf" + kText}; }
void read_text(std::string_view bytes) {
  CorpusSpec spec;
  spec.text = fuzzed_file(bytes);
  for (const char* documents : CorpusSpec::kDocuments) {
    spec.documents = documents;
    read_all(spec);
  }
}

Seeds tsv_seeds() { return {"en\tde\nA dog.\tEin Hund.\nTwo.\tZwei.\textra\n\n"}; }
Seeds csv_seeds() { return {"en,de\n\"A \"\"dog\"\",\nruns\",Ein Hund\r\nTwo,Zwei\n"}; }
Seeds jsonl_seeds() {
  return {
      "{\"en\": \"A dog.\", \"de\": \"Ein Hund.\", \"n\": 1.5, \"x\": {\"y\": [1, null]}}\n\n"
      "{\"en\": \"\\u00e9\\n\", \"de\": \"\\ud83d\\ude00\"}\n"};
}
template <const RecordFormat* format>
void read_table(std::string_view bytes) {
  CorpusSpec spec;
  spec.records = {fuzzed_file(bytes), format};
  spec.source_column = "en";
  spec.target_column = "de";
  if (format->has_columns) spec.records.header = "yes";
  read_all(spec);
}

Seeds parquet_seeds() {
  Seeds seeds;
  for (const char* name :
       {"pairs_snappy_v1", "pairs_zstd_v2", "pairs_gzip_plain", "pairs_none_v2"}) {
    seeds.push_back(read_file(project_file(concat("tests/fixtures/parquet/", name, ".parquet"))));
  }
  return seeds;
}
void read_parquet(std::string_view bytes) {
  constexpr int kMostRows = 1000;  // a few bytes can stand for billions of nulls
  parquet::RowReader all(fuzzed_file(bytes), {});
  std::string line;
  for (int i = 0; i < kMostRows && all.next(line); ++i) {
  }
  parquet::RowReader some(fuzzed_file(bytes), {"translation.en", "tokens", "messages", "text"});
  for (int i = 0; i < kMostRows && some.next(line); ++i) {
  }
}

Seeds point_seeds() { return {"x,y\n1,2\n-3e-1, 4.5\n\n", "1,2\n3,4\n"}; }
void read_points(std::string_view bytes) {
  CorpusSpec spec;
  spec.records = {fuzzed_file(bytes), &kCsv};
  spec.settle_columns(CorpusSpec::Kind::kPoints);
  load_points({spec});
}

Seeds ding_seeds() {
  return {
      "# comment\nHund {m}; R\xc3\xbc"
      "de {m} [zool.] | Hunde {pl} :: dog; hound | dogs\n"};
}
void read_ding(std::string_view bytes) {
  CorpusSpec spec;
  spec.ding = fuzzed_file(bytes);
  read_all(spec);
}

Seeds squad_seeds() {
  return {R"({"version": "2.0", "data": [{"title": "t", "paragraphs": [{"context": "The dog ran.",
    "qas": [{"id": "1", "question": "Who?", "answers": [{"text": "dog", "answer_start": 4}]},
            {"id": "2", "question": "Why?", "is_impossible": true, "answers": []}]}]}]})"};
}
void read_squad(std::string_view bytes) {
  CorpusSpec spec;
  spec.squad = fuzzed_file(bytes);
  FilterCounts counts;
  read_questions(spec, counts);
}

// ---- Token caches, whose checksums are put right: else hardly a mutant would get behind them.

constexpr uint64_t kKey = 77;
constexpr int64_t kColumns = 2;

Seeds cache_seeds() {
  const std::string path = fuzzed_folder() + "/cache";
  TableBuilder builder(kColumns, path, kKey);
  const std::vector<int32_t> ids = {5, 6, 7}, text = ids_of_text("some text"), none;
  builder.add({ids, text});
  builder.add({none, text});
  CorpusFacts facts;
  facts.parts = {1, 1};
  facts.numbers = {9};
  facts.texts = {"a", "place"};
  builder.finish(std::move(facts));
  return {read_unpacked(path)};
}

void read_cache(std::string_view bytes) {
  constexpr size_t kHeader = 64, kWord = 8;
  std::string file(bytes);
  if (file.size() >= kHeader + 2 * kWord) {
    const auto put = [&](size_t at, uint64_t sum) { std::memcpy(&file[at], &sum, sizeof sum); };
    const size_t end = file.size() - kWord;  // one block
    put(8, kKey);
    put(end, XXH3_64bits(file.data() + kHeader, end - kHeader));
    put(kHeader - 2 * kWord, XXH3_64bits(file.data() + end, kWord));
    put(kHeader - kWord, XXH3_64bits(file.data(), kHeader - kWord));
  }
  const auto table = TokenTable::open(fuzzed_file(file, "cache"), kKey, kColumns);
  if (table == nullptr) return;
  table->ids_are_below(0, 8);
  size_t all = 0;
  for (int64_t row = 0; row < table->rows(); ++row) {
    for (const int32_t id : table->list(row, 0)) all += static_cast<size_t>(id);
    for (const char byte : text_of_ids(table->list(row, 1))) all += static_cast<size_t>(byte);
  }
  volatile const size_t used = all;
  static_cast<void>(used);
}

// ---- Chat templates.

std::vector<std::string> chat_seeds() {
  return {
      "{%- for m in messages if m.role != 'x' -%}{{ loop.index ~ m.content | trim | tojson }}"
      "{%- else %}none{% endfor %}{% set a, b = [1, 2][::-1] %}{{ a + b if a is defined }}",
      "{% macro f(x, y=1) %}{{ x[1:] }}{% endmacro %}{% set n = namespace(a={'b': 1.5}) %}"
      "{% generation %}{{ f('abc', y=n.a.b) }}{% endgeneration %}{% raw %}{{{% endraw %}"};
}
void read_chat(std::string_view bytes) {
  const auto variables = nlohmann::ordered_json::parse(
      R"({"messages": [{"role": "user", "content": "a b"}, {"role": "x", "content": null}]})");
  ChatTemplate(std::string(bytes), "fuzzed").render(variables);
}

Seeds n_best_seeds() {
  return {
      "0 ||| a dog ||| F0= -1.5 lm= 2 3 ||| -0.5 ||| 0-0\n0 ||| a ||| F0= -2 ||| -1\n"
      "1 |||  ||| F0= 0 ||| 0\n"};
}
void read_list(std::string_view bytes) {
  for (const auto& list : read_n_best(fuzzed_file(bytes), 2)) {
    check(!list.empty(), "fuzz", "a line has no entry.");
    for (const NBestEntry& entry : list) without_value(entry.features, "lm");
  }
}

constexpr FuzzTarget kTargets[] = {
    {"pnm", pnm_seeds, read_picture},
    {"png", png_seeds, read_picture},
    {"jpeg", jpeg_seeds, read_picture},
    {"idx", idx_seeds, read_idx},
    {"idx_labels", label_seeds, read_labels},
    {"image_list", image_list_seeds, read_image_list},
    {"compressed", compressed_seeds, read_compressed},
    {"text", text_seeds, read_text},
    {"tsv", tsv_seeds, read_table<&kTsv>},
    {"csv", csv_seeds, read_table<&kCsv>},
    {"jsonl", jsonl_seeds, read_table<&kJsonl>},
    {"parquet", parquet_seeds, read_parquet},
    {"points", point_seeds, read_points},
    {"ding", ding_seeds, read_ding},
    {"squad", squad_seeds, read_squad},
    {"token_cache", cache_seeds, read_cache},
    {"chat_template", chat_seeds, read_chat},
    {"n_best", n_best_seeds, read_list},
};

}  // namespace

std::span<const FuzzTarget> data_targets() { return kTargets; }

}  // namespace tapestry
