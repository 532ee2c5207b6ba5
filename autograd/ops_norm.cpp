#include "autograd/ops.h"
#include "autograd/recording.h"
#include "autograd/running_statistics.h"
#include "core/dispatch_device.h"
#include "core/kernels/batch_norm.h"
#include "core/kernels/embedding.h"
#include "core/shapes_only.h"

namespace tapestry {
namespace {

// Statistics of the rows that backward needs.
struct NormStats {
  Tensor mean, rstd;
};

void check_norm(const char* who, const Var& x, const Var& gamma, const Var& beta) {
  check_same_kind(who, x, gamma);
  check_same_kind(who, x, beta);
  check(x.shape().rank() >= 1 && gamma.shape() == Shape{x.shape()[-1]} &&
            (!beta.defined() || beta.shape() == gamma.shape()),
        who, "x is ", x.shape(), ", gamma ", gamma.shape(), ", beta ", beta.shape(), '.');
}

NormShape norm_shape(const Var& x, const NormOptions& options) {
  check(options.kind != NormKind::kBatch, "norm",
        "expected kLayer or kRms, got kBatch; call batch_norm().");
  return {options.kind, x.shape().rows(), x.shape().cols(), options.eps};
}

NormStats empty_stats(const Var& x, const NormShape& shape) {
  const Device device = x.value().device();
  const DType dtype = wider(x.dtype());
  return {shape.kind == NormKind::kLayer ? Tensor::empty({shape.rows}, dtype, device) : Tensor(),
          Tensor::empty({shape.rows}, dtype, device)};
}

}  // namespace

// xhat = (x - mean) / sqrt(var + eps), y = gamma xhat + beta.
// dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = gamma dy; dgamma = sum dy xhat,
// dbeta = sum dy. RMS has no mean of x and no mean of g.
Var norm(const Var& x, const Var& gamma, const Var& beta, const NormOptions& options) {
  check_norm("norm", x, gamma, beta);
  const NormShape shape = norm_shape(x, options);
  const NormStats stats = empty_stats(x, shape);
  Var y = Tensor::empty_like(x.value());
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    NormForward<T> args{};
    args.x = x.value().data<T>();
    args.gamma = gamma.value().data<T>();
    args.beta = data_or_null<T>(beta.value());
    args.y = y.value().data<T>();
    args.mean = data_or_null<Wider<T>>(stats.mean);
    args.rstd = stats.rstd.data<Wider<T>>();
    kernels::norm(device, shape, args);
  });
  Tape::record({&x, &gamma, &beta}, y,
               [shape, stats, vx = x.value(), vg = gamma.value(), gx = gradient_of(x),
                gg = gradient_of(gamma), gb = gradient_of(beta)](Tensor dy) {
                 Targets<3> targets({gx, gg, gb});
                 const auto &dx = targets[0], &dg = targets[1], &db = targets[2];
                 dispatch(dy, [&](auto device, auto type) {
                   using T = decltype(type);
                   NormBackward<T> args{};
                   args.sum = vx.data<T>();
                   args.gamma = vg.data<T>();
                   args.mean = data_or_null<Wider<T>>(stats.mean);
                   args.rstd = stats.rstd.data<Wider<T>>();
                   args.dy = dy.data<T>();
                   args.dx = data_or_null<T>(dx.tensor), args.dx_write = dx.write;
                   args.d_gamma = data_or_null<T>(dg.tensor), args.d_gamma_write = dg.write;
                   args.d_beta = data_or_null<T>(db.tensor), args.d_beta_write = db.write;
                   kernels::norm_backward(device, shape, args);
                 });
                 targets.deliver();
               });
  return y;
}

// s = residual + dropout(x), y = norm(s).  ds = d norm(dy) + dsum, d residual = ds,
// dx = dropout(ds) with the same draws.
ResidualNorm residual_norm(const Var& x, const Var& residual, const Var& gamma, const Var& beta,
                           const NormOptions& options) {
  check_norm("norm", x, gamma, beta);
  check_same_kind("residual_norm", x, residual);
  check(x.shape() == residual.shape(), "residual_norm", "x is ", x.shape(), ", residual ",
        residual.shape(), '.');
  check(options.dropout >= 0 && options.dropout < 1, "residual_norm",
        "the dropout probability must be in [0, 1), got ", options.dropout, '.');
  const NormShape shape = norm_shape(x, options);
  const NormStats stats = empty_stats(x, shape);
  Dropout drop;
  if (options.dropout > 0 && Tape::current() != nullptr) {
    drop = {static_cast<float>(options.dropout), Tape::current()->next_random()};
  }
  ResidualNorm result{Tensor::empty_like(x.value()), Tensor::empty_like(x.value())};
  dispatch(x.value(), [&](auto device, auto type) {
    using T = decltype(type);
    NormForward<T> args{};
    args.x = x.value().data<T>();
    args.residual = residual.value().data<T>();
    args.dropout = drop;
    args.gamma = gamma.value().data<T>();
    args.beta = data_or_null<T>(beta.value());
    args.sum = result.sum.value().data<T>();
    args.y = result.normed.value().data<T>();
    args.mean = data_or_null<Wider<T>>(stats.mean);
    args.rstd = stats.rstd.data<Wider<T>>();
    kernels::norm(device, shape, args);
  });
  Tape::record({&x, &residual, &gamma, &beta}, result.normed, result.sum,
               [shape, stats, drop, vs = result.sum.value(), vg = gamma.value(),
                gx = gradient_of(x), gr = gradient_of(residual), gg = gradient_of(gamma),
                gb = gradient_of(beta)](Tensor dy, Tensor dsum) {
                 // Without dy the norm's parameters get no gradient.
                 const GradientRef none;
                 Targets<4> targets({gx, gr, dy.defined() ? gg : none, dy.defined() ? gb : none});
                 const auto &dx = targets[0], &dr = targets[1], &dg = targets[2], &db = targets[3];
                 dispatch(vs, [&](auto device, auto type) {
                   using T = decltype(type);
                   NormBackward<T> args{};
                   args.sum = vs.data<T>();
                   args.gamma = vg.data<T>();
                   args.mean = data_or_null<Wider<T>>(stats.mean);
                   args.rstd = stats.rstd.data<Wider<T>>();
                   args.dy = data_or_null<T>(dy);
                   args.dsum = data_or_null<T>(dsum);
                   args.dropout = drop;
                   args.dx = data_or_null<T>(dx.tensor), args.dx_write = dx.write;
                   args.d_residual = data_or_null<T>(dr.tensor), args.d_residual_write = dr.write;
                   args.d_gamma = data_or_null<T>(dg.tensor), args.d_gamma_write = dg.write;
                   args.d_beta = data_or_null<T>(db.tensor), args.d_beta_write = db.write;
                   kernels::norm_backward(device, shape, args);
                 });
                 targets.deliver();
               });
  return result;
}

// xhat = (x - mean) / sqrt(var + eps) by column, y = gamma xhat + beta.
// dx = gamma rstd (dy - mean(dy) - xhat mean(dy xhat)), dgamma = sum dy xhat, dbeta = sum dy.
Var batch_norm(const Var& x, const Var& gamma, const Var& beta, const Tensor& running_mean,
               const Tensor& running_variance, const BatchNormOptions& options) {
  check_norm("batch_norm", x, gamma, beta);
  for (const Tensor* running : {&running_mean, &running_variance}) {
    check(running->defined() && running->dtype() == wider(x.dtype()), "batch_norm",
          "running statistics of ", x.dtype(), " must be ", wider(x.dtype()), '.');
    check(running->defined() && running->shape() == gamma.shape(), "batch_norm", "gamma is ",
          gamma.shape(), ", a running statistic ", running->shape(), '.');
  }
  const BatchNormShape shape{x.shape().rows(), x.shape().cols(), options.eps};
  const bool training = Tape::current() != nullptr && shape.rows > 0;
  const Tensor mean = training ? Tensor::empty_like(running_mean) : running_mean;
  const Tensor variance = training ? Tensor::empty_like(running_variance) : running_variance;
  Var y = Tensor::empty_like(x.value());
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    using W = Wider<T>;
    if (training) {
      kernels::column_moments(device, shape.rows, shape.cols, x.value().data<T>(), mean.data<W>(),
                              variance.data<W>());
    }
    if (training && !Tape::current()->repeats()) {
      update_running(mean, options.momentum, 1.0, running_mean);
      if (options.biased || shape.rows > 1) {
        const double correction =
            options.biased ? 1 : static_cast<double>(shape.rows) / (shape.rows - 1);
        update_running(variance, options.momentum, correction, running_variance);
      }
    }
    BatchNormForward<T> args{};
    args.x = x.value().data<T>();
    args.mean = mean.data<Wider<T>>();
    args.variance = variance.data<Wider<T>>();
    args.gamma = gamma.value().data<T>();
    args.beta = data_or_null<T>(beta.value());
    args.y = y.value().data<T>();
    kernels::batch_norm(device, shape, args);
  });
  Tape::record({&x, &gamma, &beta}, y,
               [shape, mean, variance, vx = x.value(), vg = gamma.value(), gx = gradient_of(x),
                gg = gradient_of(gamma), gb = gradient_of(beta)](Tensor dy) {
                 Targets<3> targets({gx, gg, gb});
                 const auto &dx = targets[0], &dg = targets[1], &db = targets[2];
                 dispatch(dy, [&](auto device, auto type) {
                   using T = decltype(type);
                   BatchNormBackward<T> args{};
                   args.x = vx.data<T>();
                   args.mean = mean.data<Wider<T>>();
                   args.variance = variance.data<Wider<T>>();
                   args.gamma = vg.data<T>();
                   args.dy = dy.data<T>();
                   args.dx = data_or_null<T>(dx.tensor), args.dx_write = dx.write;
                   args.d_gamma = data_or_null<T>(dg.tensor), args.d_gamma_write = dg.write;
                   args.d_beta = data_or_null<T>(db.tensor), args.d_beta_write = db.write;
                   kernels::batch_norm_backward(device, shape, args);
                 });
                 targets.deliver();
               });
  return y;
}

// y = dropout(scale E[ids] + P).  dE[id] sums scale dropout(dy) over the places of id, dP sums
// dropout(dy) over the batch.
Var embedding(const Tensor& ids, const Var& table, const Var& positions,
              const EmbeddingOptions& options) {
  check(ids.defined() && ids.dtype() == DType::kInt32 && ids.shape().rank() == 2, "embedding",
        "ids must be (B, T) int32.");
  check_same_kind("embedding", table, positions);
  check(table.shape().rank() == 2, "embedding", "the table must be (V, D), got ", table.shape(),
        '.');
  check(options.dropout >= 0 && options.dropout < 1, "embedding",
        "the dropout probability must be in [0, 1), got ", options.dropout, '.');
  EmbeddingShape shape{ids.numel(),    table.shape()[1],        table.shape()[0],
                       ids.shape()[1], options.position_offset, options.scale};
  shape.position_offsets =
      offsets_of("embedding", options.position_offsets, ids.shape()[0], table, positions);
  if (positions.defined() && options.positions.defined()) {
    check(positions.shape().rank() == 2 && positions.shape()[1] == shape.cols, "embedding",
          "the table of positions must have rows of ", shape.cols, ", got ", positions.shape(),
          '.');
    shape.positions =
        positions_of("embedding", options.positions, ids.shape(), positions.shape()[0]);
  } else if (positions.defined()) {
    check(positions.shape().rank() == 2 && positions.shape()[1] == shape.cols &&
              positions.shape()[0] >= shape.position_offset + shape.length,
          "embedding", "positions ", shape.position_offset, " to ",
          shape.position_offset + shape.length - 1, " of width ", shape.cols,
          " are needed, the table of positions is ", positions.shape(), '.');
  }
  if (ids.device().is_cpu() && ShapesOnly::has_memory(ids.bytes())) {
    const int32_t* id = ids.data<int32_t>();
    for (int64_t i = 0; i < shape.rows; ++i) {
      check(id[i] >= 0 && id[i] < shape.vocab, "embedding", "ids must be in [0, ", shape.vocab,
            "), got ", id[i], " at (", i / shape.length, ", ", i % shape.length, ").");
    }
  }
  Dropout drop;
  if (options.dropout > 0 && Tape::current() != nullptr) {
    drop = {static_cast<float>(options.dropout), Tape::current()->next_random()};
  }
  Var y = Tensor::empty({ids.shape()[0], ids.shape()[1], shape.cols}, table.dtype(),
                        table.value().device());
  dispatch(y.value(), [&](auto device, auto type) {
    using T = decltype(type);
    kernels::embedding(device, shape, ids.data<int32_t>(), table.value().data<T>(),
                       data_or_null<T>(positions.value()), drop, y.value().data<T>());
  });
  Tape::record({&table, &positions}, y,
               [shape, drop, ids, places = options.positions, gt = gradient_of(table),
                gp = gradient_of(positions)](Tensor dy) {
                 Targets<2> targets({gt, gp});
                 const auto &dt = targets[0], &dp = targets[1];
                 dispatch(dy, [&](auto device, auto type) {
                   using T = decltype(type);
                   kernels::embedding_backward(
                       device, shape, ids.data<int32_t>(), dy.data<T>(), drop,
                       data_or_null<T>(dt.tensor), dt.write, data_or_null<T>(dp.tensor),
                       dp.tensor.defined() ? dp.tensor.shape()[0] : 0, dp.write);
                 });
                 targets.deliver();
               });
  return y;
}

}  // namespace tapestry
