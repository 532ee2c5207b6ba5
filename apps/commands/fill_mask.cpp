#include <fmt/format.h>

#include <iostream>

#include "apps/commands/filter.h"
#include "apps/tasks/language_modelling.h"
#include "core/parallel.h"

namespace tapestry {
namespace {

// The ids of bos and the text, with the mask's id in place of each "<mask>".
std::vector<int32_t> encode_with_masks(const Tokenizer& tokenizer, const std::string& line) {
  const std::string mask = kMaskPiece;
  std::vector<int32_t> ids = {kBosId};
  for (size_t begin = 0;;) {
    const size_t end = line.find(mask, begin);
    const std::string text = line.substr(begin, end - begin);
    const std::vector<int32_t> part =
        begin == 0 ? tokenizer.encode(text) : tokenizer.encode_continuation(text);
    ids.insert(ids.end(), part.begin(), part.end());
    if (end == std::string::npos) return ids;
    ids.push_back(*tokenizer.mask_id());
    begin = end + mask.size();
  }
}

}  // namespace

int run_fill_mask(const FillMaskArguments& arguments) {
  set_num_threads(arguments.compute.threads);
  const auto model =
      TextModel::load(arguments.model, arguments.compute.device, "fill-mask", kFillsMasks);
  const Tokenizer& tokenizer = *model->tokenizers.source;
  filter_lines("fill-mask", 1, [&](const std::vector<std::string>& lines, int64_t number) {
    const std::vector<int32_t> ids = encode_with_masks(tokenizer, lines[0]);
    const auto positions = static_cast<size_t>(model->config.model.longest_sequence());
    if (ids.size() > positions) {
      fail(ErrorKind::kData, "[fill-mask] line ", number + 1, " has ", ids.size(),
           " tokens, the model's positions end at ", positions, '.');
    }
    std::string answer;
    for (const std::vector<Fill>& guesses : fill_masks(*model, ids, arguments.top_k)) {
      if (!answer.empty()) answer += " | ";
      for (size_t i = 0; i < guesses.size(); ++i) {
        const std::string word = tokenizer.decode({guesses[i].token});
        answer += fmt::format("{}{} {:.4f}", i == 0 ? "" : "  ",
                              word.empty() ? tokenizer.piece(guesses[i].token) : word,
                              guesses[i].probability);
      }
    }
    std::cout << answer << '\n';
  });
  return 0;
}

}  // namespace tapestry
