#include "core/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "core/allocator.h"
#include "core/dispatch_device.h"

namespace tapestry {
namespace {

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(ShapeTest, KnowsItsSizes) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.numel(), 30);
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape.cols(), 5);
  EXPECT_EQ(shape[1], 3);
  EXPECT_EQ(shape[-1], 5);
  EXPECT_EQ(shape.str(), "(2, 3, 5)");
  EXPECT_EQ(shape.with(1, 7), (Shape{2, 7, 5}));
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(Shape().cols(), 1);
  EXPECT_EQ((Shape{0, 4}).numel(), 0);
  EXPECT_FALSE((Shape{6}) == (Shape{6, 1}));
}

TEST(ShapeTest, RefusesWhatCannotBe) {
  EXPECT_THROW((Shape{1, 1, 1, 1, 1}), Error);
  EXPECT_THROW((Shape{2, -1}), Error);
  EXPECT_THROW((Shape{int64_t{1} << 40, int64_t{1} << 40}), Error);
  EXPECT_THROW((Shape{2, 3}[2]), Error);
  EXPECT_THROW((Shape{2, 3}[-3]), Error);
}

TEST(ShapeTest, BroadcastsAsNumpy) {
  EXPECT_EQ(broadcast_shapes("f", {4, 1, 3}, {5, 1}), (Shape{4, 5, 3}));
  EXPECT_EQ(broadcast_shapes("f", {}, {2}), (Shape{2}));
  EXPECT_EQ(broadcast_shapes("f", {0, 1}, {1, 3}), (Shape{0, 3}));
  const std::string message = message_of([] { broadcast_shapes("mul", {2, 3}, {2, 4}); });
  EXPECT_NE(message.find("[mul]"), std::string::npos) << message;
  EXPECT_NE(message.find("(2, 4)"), std::string::npos) << message;
}

TEST(TensorTest, HoldsWhatItWasGiven) {
  const Tensor tensor = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(tensor.dtype(), DType::kFloat32);
  EXPECT_EQ(tensor.bytes(), 24);
  EXPECT_EQ(tensor.data<float>()[4], 5);
  EXPECT_EQ(tensor.to_vector<double>(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.raw()) % 64, 0u);
  EXPECT_EQ(Tensor::full({2}, 1.5, DType::kFloat64).to_vector<double>(),
            (std::vector<double>{1.5, 1.5}));
  EXPECT_EQ(Tensor::zeros({3}, DType::kInt32).to_vector<int32_t>(),
            (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(Tensor::full({}, 2.5).item(), 2.5);
}

TEST(TensorTest, ReshapeAndSliceShareStorage) {
  Tensor tensor = Tensor::from<int32_t>({0, 1, 2, 3, 4, 5}, {3, 2});
  const Tensor flat = tensor.reshape({6}), rows = tensor.slice(1, 3);
  rows.data<int32_t>()[0] = 42;
  EXPECT_EQ(flat.data<int32_t>()[2], 42);
  EXPECT_EQ(rows.shape(), (Shape{2, 2}));
  EXPECT_EQ(tensor.slice(1, 1).numel(), 0);
  tensor = Tensor();
  EXPECT_EQ(rows.data<int32_t>()[3], 5) << "the slice keeps the storage alive";
}

TEST(TensorTest, CopiesHaveTheirOwnStorage) {
  const Tensor tensor = Tensor::from<float>({1, 2}, {2});
  const Tensor copy = tensor.clone(), same = tensor.to(DType::kFloat32);
  tensor.data<float>()[0] = 9;
  EXPECT_EQ(copy.data<float>()[0], 1);
  EXPECT_EQ(same.data<float>()[0], 9) << "to() the same dtype is the tensor itself";
  Tensor target = Tensor::zeros({2});
  target.copy_from(tensor);
  EXPECT_EQ(target.to_vector<float>(), (std::vector<float>{9, 2}));
}

TEST(TensorTest, ConvertsBetweenTypes) {
  const Tensor tensor = Tensor::from<double>({1.25, -2.75, 3}, {3});
  EXPECT_EQ(tensor.to(DType::kFloat32).to_vector<float>(), (std::vector<float>{1.25, -2.75, 3}));
  EXPECT_EQ(tensor.to(DType::kInt32).to_vector<int32_t>(), (std::vector<int32_t>{1, -2, 3}));
}

TEST(TensorTest, SaysWhatIsWrong) {
  const Tensor tensor = Tensor::zeros({2, 3});
  EXPECT_NE(message_of([&] { tensor.data<double>(); }).find("float64"), std::string::npos);
  EXPECT_NE(message_of([&] { Tensor().data<float>(); }).find("undefined"), std::string::npos);
  EXPECT_NE(message_of([&] { tensor.reshape({4}); }).find("(2, 3) to (4)"), std::string::npos);
  EXPECT_NE(message_of([&] { tensor.slice(1, 3); }).find("[1, 3)"), std::string::npos);
  EXPECT_NE(message_of([&] { tensor.item(); }).find("(2, 3)"), std::string::npos);
  EXPECT_NE(message_of([] { Tensor::from<float>({1}, {2}); }).find("got 1"), std::string::npos);
  Tensor other = Tensor::zeros({3, 2});
  EXPECT_NE(message_of([&] { other.copy_from(tensor); }).find("[copy]"), std::string::npos);
}

TEST(TensorTest, GivesItsMemoryBack) {
  const int64_t before = host_memory().bytes_in_use;
  {
    const Tensor tensor = Tensor::empty({1000});
    const Tensor shared = tensor.reshape({10, 100});
    EXPECT_GE(host_memory().bytes_in_use - before, 4000);
  }
  EXPECT_EQ(host_memory().bytes_in_use, before);
}

TEST(TensorTest, OverOthersMemoryKeepsItsOwner) {
  const auto values = std::make_shared<std::vector<float>>(std::vector<float>{0, 1, 2, 3, 4, 5});
  {
    const Tensor tensor = Tensor::over(values->data(), values, {3, 2}, DType::kFloat32);
    const Tensor row = tensor.slice(1, 2);
    EXPECT_EQ(values.use_count(), 3);
    row.data<float>()[1] = 7;
    EXPECT_EQ((*values)[3], 7);
    EXPECT_EQ(tensor.clone().to_vector<float>()[3], 7);
    EXPECT_EQ(values.use_count(), 3);
  }
  EXPECT_EQ(values.use_count(), 1);
  char* const odd = reinterpret_cast<char*>(values->data()) + 2;
  EXPECT_NE(
      message_of([&] { Tensor::over(odd, values, {2}, DType::kFloat32); }).find("multiples of 4"),
      std::string::npos);
  EXPECT_NE(message_of([&] { Tensor::over(odd, nullptr, {2}, DType::kBFloat16); }).find("owner"),
            std::string::npos);
}

TEST(DispatchTest, FindsTheType) {
  std::string seen;
  const auto note = [&](auto, auto type) { seen = name_of(dtype_of<decltype(type)>); };
  dispatch(Tensor::zeros({1}), note);
  EXPECT_EQ(seen, "float32");
  dispatch(Tensor::zeros({1}, DType::kFloat64), note);
  EXPECT_EQ(seen, "float64");
  EXPECT_NE(message_of([&] { dispatch(Tensor::zeros({1}, DType::kInt32), note); }).find("int32"),
            std::string::npos);
}

TEST(TensorTest, BFloat16RoundsToNearestEven) {
  // 8 significant bits: 1 + 2^-8 lies half-way between 1 and 1 + 2^-7.
  const std::vector<double> given = {1, 1 + 0x1p-8, 1 + 0x3p-8, 1 + 0x1.01p-8, -3.14159, 1e39, 0};
  const std::vector<double> expected = {1, 1, 1 + 0x1p-6, 1 + 0x1p-7, -3.140625, HUGE_VAL, 0};
  const Tensor tensor = Tensor::from(given, {7}).to(DType::kBFloat16);
  EXPECT_EQ(tensor.bytes(), 14);
  EXPECT_EQ(tensor.to_vector<double>(), expected);
  const BFloat16 nan(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(static_cast<float>(nan)));
}

}  // namespace
}  // namespace tapestry
