// A corpus in shards: its keys name files by patterns (data/files/file_pattern.h). Each format is
// read shard by shard by the reader of one file, so headers, documents and ranges are those of a
// file, and messages name the shard. What reads the files of a corpus asks here which they are.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/corpora/corpus.h"

namespace tapestry {

/// The corpora of one file for each key, in order, of which `spec` consists; itself if it has no
/// pattern. The limit is still that of all. Throws Error(kData) if a pattern matches no file or the
/// patterns match different numbers of files.
std::vector<CorpusSpec> shards_of(const CorpusSpec& spec);

/// Why the files of a key cannot stand beside those of the corpus's first key: "matches 2 files,
/// but source's a/*.de matches 3"; "" if they can.
std::string mismatch_of_shards(const CorpusSpec& spec, const std::string& key);

/// Calls `read` with each shard of a corpus, whose limit is what the shards before leave of it; it
/// returns the number of usable examples that it has read. Ends where the limit is reached.
void for_each_shard(const CorpusSpec& spec,
                    const std::function<int64_t(const CorpusSpec& shard)>& read);

using OpenShard = std::function<std::unique_ptr<PairReader>(const CorpusSpec& shard)>;

/// The pairs of several shards, one after the other; the first is opened at once.
std::unique_ptr<PairReader> chain_shards(std::vector<CorpusSpec> shards, OpenShard open);

}  // namespace tapestry
