#include "data/corpora/shards.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "data/files/file_pattern.h"

namespace tapestry {
namespace {

std::string count_of(size_t files) { return concat(files, files == 1 ? " file" : " files"); }

class ChainedReader : public PairReader {
 public:
  ChainedReader(std::vector<CorpusSpec> shards, OpenShard open)
      : shards_(std::move(shards)), open_(std::move(open)), limit_(shards_.front().limit) {
    reader_ = open_(shards_.front());
  }

  bool next(TextPair& pair) override {
    while (reader_ != nullptr) {
      if (reader_->next(pair)) return true;
      counts_.add(reader_->counts());
      reader_.reset();
      const bool full = limit_ > 0 && counts_.kept == limit_;
      if (full || ++at_ == shards_.size()) break;
      if (limit_ > 0) shards_[at_].limit = limit_ - counts_.kept;
      reader_ = open_(shards_[at_]);
    }
    return false;
  }

  FilterCounts counts() const override {
    FilterCounts all = counts_;  // of the shards before
    if (reader_ != nullptr) all.add(reader_->counts());
    return all;
  }

 private:
  std::vector<CorpusSpec> shards_;
  const OpenShard open_;
  const int64_t limit_;
  size_t at_ = 0;
  std::unique_ptr<PairReader> reader_;
};

}  // namespace

std::string mismatch_of_shards(const CorpusSpec& spec, const std::string& key) {
  const std::vector<std::string> keys = CorpusSpec::file_keys();
  const auto first =
      std::ranges::find_if(keys, [&](const std::string& one) { return !spec.file(one).empty(); });
  if (first == keys.end() || spec.file(key).empty()) return "";
  const size_t files = matching_files(spec.file(key)).size(),
               wanted = matching_files(spec.file(*first)).size();
  if (files == wanted) return "";
  return concat("stands for ", count_of(files), " (", spec.file(key), "), but ", *first, " for ",
                wanted, " (", spec.file(*first), ')');
}

std::vector<CorpusSpec> shards_of(const CorpusSpec& spec) {
  std::vector<CorpusSpec> shards;
  for (const std::string& key : CorpusSpec::file_keys()) {
    if (spec.file(key).empty()) continue;
    const std::vector<std::string> files = matching_files(spec.file(key));
    if (files.empty()) fail(ErrorKind::kData, "[data] no file matches ", spec.file(key), '.');
    const std::string mismatch = mismatch_of_shards(spec, key);
    if (!mismatch.empty()) fail(ErrorKind::kData, "[data] ", key, ' ', mismatch, '.');
    shards.resize(files.size(), spec);
    for (size_t i = 0; i < files.size(); ++i) shards[i].set_file(key, files[i]);
  }
  return shards.empty() ? std::vector{spec} : shards;
}

void for_each_shard(const CorpusSpec& spec,
                    const std::function<int64_t(const CorpusSpec& shard)>& read) {
  int64_t left = spec.limit;
  for (CorpusSpec& shard : shards_of(spec)) {
    shard.limit = left;
    const int64_t usable = read(shard);
    if (spec.limit > 0 && (left -= usable) <= 0) return;
  }
}

std::unique_ptr<PairReader> chain_shards(std::vector<CorpusSpec> shards, OpenShard open) {
  return std::make_unique<ChainedReader>(std::move(shards), std::move(open));
}

}  // namespace tapestry
