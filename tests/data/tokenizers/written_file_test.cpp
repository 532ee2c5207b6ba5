// A tokenizer.json as it is written.
#include "data/tokenizers/parts/written_file.h"

#include <gtest/gtest.h>

namespace tapestry::tokenizer_file {
namespace {

TEST(WrittenTokenizerFile, HasTheKeysOfTheLibraryInItsOrder) {
  BpeModel model{.vocab = Json::object(), .merges = {"a b"}, .ignore_merges = true};
  append(model.vocab, "b", 1);
  append(model.vocab, "a", 0);
  const std::string bytes =
      written({.added_tokens = {{.id = 2, .content = "<m>", .lstrip = true, .special = false}},
               .pre_tokenizer = byte_level(true, false, true),
               .post_processor = template_of({{"A"}, {"</s>", 2}},
                                             {{"A"}, {"</s>", 2}, {.name = "B", .type = 1}}),
               .model = model.json()});
  EXPECT_EQ(
      bytes,
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":2,"content":"<m>",)"
      R"("single_word":false,"lstrip":true,"rstrip":false,"normalized":false,"special":false}],)"
      R"("normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true,)"
      R"("trim_offsets":false,"use_regex":true},"post_processor":{"type":"TemplateProcessing",)"
      R"("single":[{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],)"
      R"("pair":[{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}},)"
      R"({"Sequence":{"id":"B","type_id":1}}],"special_tokens":{"</s>":{"id":"</s>","ids":[2],)"
      R"("tokens":["</s>"]}}},"decoder":null,"model":{"type":"BPE","dropout":null,)"
      R"("unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,)"
      R"("fuse_unk":false,"byte_fallback":false,"ignore_merges":true,"vocab":{"b":1,"a":0},)"
      R"("merges":["a b"]}})"
      "\n");
}

}  // namespace
}  // namespace tapestry::tokenizer_file
