#include "apps/config/sections.h"

namespace tapestry {

void bind_range(ConfigSection& s, CorpusSpec& corpus, bool applies) {
  std::vector<double> range = {corpus.range_begin, corpus.range_end};
  s.read_if(applies, "without documents: file", "range", range,
            "Part of the file: [0, 0.9] is its first nine tenths, in characters or images.",
            between(0, 1));
  if (range.size() == 2 && range[0] < range[1]) {
    corpus.range_begin = range[0], corpus.range_end = range[1];
  } else {
    s.complain("range", '\'', s.full_name("range"),
               "' must be two numbers, the first the smaller, such as [0, 0.9].");
  }
}

namespace {

// The keys of how texts become rows. `condition` is what a config has where they do not apply.
void bind_text_rows(ConfigSection& s, Config& config, const std::string& condition) {
  DataOptions& data = config.data;
  s.read_choice_if(examples_of(config).has_documents, condition, "rows", data.rows,
                   {{"blocks", TextRows::kBlocks}, {"documents", TextRows::kDocuments}},
                   "blocks: documents are joined, and cut into blocks of block_size. documents: "
                   "each is a row of its own that sees no other one (line_by_line, or training "
                   "without packing, elsewhere); see max_length and overlong.");
  const ExampleKind& kind = examples_of(config);  // rows are a part of it
  const bool texts = kind.of_text();
  const std::string why = !texts        ? condition
                          : kind.joined ? concat(condition, "; see block_size, or rows: documents")
                          : kind.has_documents ? "with rows: documents; see max_length"
                                               : concat(condition, "; see max_length");
  s.read_if(kind.joined, why, "block_size", data.block_size,
            "Length of a training example in tokens: the text is cut into blocks of it.",
            between(2, double(BlockOptions::kLongest)));
  const bool continues = kind.joined && config.task->can(kContinuesText);
  s.read_if(continues, kind.joined ? concat("with task: ", config.task->name) : why, "eval_stride",
            data.eval_stride,
            "In a validation each block begins so many tokens behind the one before, and counts "
            "only those that the one before does not predict: the smaller, the more text stands "
            "before each, and the longer it takes. 0: block_size.",
            between(0, double(BlockOptions::kLongest)));
  s.read_choice_if(kind.joined, why, "packing", data.best_fit,
                   {{"stream", false}, {"best_fit", true}},
                   "stream: blocks are cut from the joined text, wherever documents begin and end. "
                   "best_fit: whole documents, or the rest of one longer than a block, fill each "
                   "block as well as they can, and an epoch has all; with eval_stride only in "
                   "training.");
  s.read_if(kind.joined, why, "document_mask", data.document_mask,
            "Documents that share a block do not see each other, and the positions of each begin "
            "at 0.");
  s.read_if(texts, condition, "cache", data.cache,
            "Keeps the token ids in a file, so that the next start need not encode the text.");
  s.read_optional_path_if(texts && data.cache, texts ? "without cache" : condition, "cache_dir",
                          data.cache_dir,
                          "Folder for these files, which all runs in it share and nobody deletes; "
                          "without it they are in output_dir.");
  s.read_if(texts, condition, "sampling_temperature", config.batch.mix.temperature,
            "T: the share of a corpus of n examples (blocks, where texts are cut into them) in an "
            "epoch is in proportion to n^(1/T), so that small ones come more often; 0: every "
            "example comes once.",
            between(0, MixOptions::kLargestTemperature));
  s.read_if(!kind.joined && texts, why, "max_length", data.corpus.max_length,
            "Longest side of an example in tokens, its begin and end included.",
            between(double(kind.shortest), double(BlockOptions::kLongest)));
  s.read_choice_if(!kind.joined && texts, why, "overlong", data.corpus.overlong,
                   names(CorpusOptions::kOverlong),
                   "What happens to a longer example: it is left out, cut, or an error.");
  s.read_if(
      kind.in_windows, concat("with task: ", config.task->name), "doc_stride", data.doc_stride,
      "A context that is too long for max_length is read in windows; each begins so many tokens "
      "behind the one before.",
      between(1, double(BlockOptions::kLongest)));
}

}  // namespace

void bind_data(ConfigSection& s, Config& config) {
  DataOptions& data = config.data;
  s.demand("train");
  bind_corpora(s, "train", "The corpus to learn from, or a list of corpora.", *config.task,
               data.train);
  bind_corpora(s, "valid",
               "The corpus of the validation, or a list of corpora; without it there is no "
               "validation. It has the keys of data.train.",
               *config.task, data.valid);
  bind_corpora(s, "test",
               "The corpus that is measured once, at the end of the training, with the best "
               "checkpoint. It has the keys of data.train.",
               *config.task, data.test);
  const std::string condition = condition_of(config);
  if (examples_of(config).of_images()) bind_image_data(s, config);
  bind_text_rows(s, config, condition);
  const ExampleKind& kind = examples_of(config);
  bind_talks(s, config, kind.talks, condition);
  s.section_if(kind.has_targets, condition, "clean",
               "What is left out of data.train, each with its count in the log.",
               [&](ConfigSection& c) { bind_cleaning(c, config); });
  if (!kind.of_images()) {
    s.section_if(kind.has_targets, condition, "augment",
                 "How texts of data.train change in each epoch.",
                 [&](ConfigSection& a) { bind_text_changes(a, config); });
  }
  s.read_if(kind.has_classes, concat("with task: ", config.task->name), "labels", data.labels,
            "The classes, in the order of the model's outputs; empty: those found in the data.");
}

}  // namespace tapestry
