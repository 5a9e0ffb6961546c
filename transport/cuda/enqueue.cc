#include "transport/cuda/enqueue.h"

#include <algorithm>
#include <array>
#include <bit>

#include "transport/cuda/opened.h"

namespace gradring::transport::cuda {

size_t traced(const Gpus::Sum& sum) {
  const bool copied = sum.inputs.size() == 1 && !scales({sum.factors});
  return is_float(sum.dtype) && !copied ? sum.inputs.size() : 0;
}

size_t traced(const Gpus::Allreduce& all) { return is_float(all.dtype) ? all.inputs.size() : 0; }

// A kernel and a copy for each piece.
size_t calls_of(const Gpus::Sum& sum) {
  return 2 * (1 + sum.count * size_of(sum.dtype) / kPieceBytes);
}

size_t calls_of(const Gpus::Allreduce& all) {
  return 1 + all.count * size_of(all.dtype) / kPieceThereBytes;
}

size_t calls_of(const Gpus::Spread& spread) {
  return spread.outputs.size() * (1 + spread.bytes / kPieceBytes);
}

Driver::Result enqueue(const Gpu& gpu, const Gpus::Sum& sum, const Watch& watch) {
  const size_t element = size_of(sum.dtype);
  if (sum.inputs.size() == 1 && !scales({sum.factors})) {
    return gpu.driver().copy_to_host(sum.out, address_of(sum.inputs[0], gpu), sum.count * element,
                                     gpu.stream());
  }
  std::array<const void*, kGpuInputsMax> inputs{};
  for (uint64_t done = 0; done < sum.count;) {
    const uint64_t count = std::min(sum.count - done, kPieceBytes / element);
    for (size_t i = 0; i < sum.inputs.size(); ++i) {
      inputs[i] = std::bit_cast<const void*>(address_of(sum.inputs[i], gpu) + done * element);
    }
    const Driver::Address room = gpu.room_for_sum_of(inputs[0]);
    void* const to = std::bit_cast<void*>(room);
    FoldArguments arguments = fold_arguments(sum.dtype, {inputs.data(), sum.inputs.size()},
                                             {&to, 1}, count, 0, {sum.factors});
    watch.put(&arguments, done);
    auto result = gpu.launch(sum.dtype, sum.op, arguments);
    if (result == Driver::kSuccess) {
      result =
          gpu.driver().copy_to_host(sum.out + done * element, room, count * element, gpu.stream());
    }
    if (result != Driver::kSuccess) return result;
    done += count;
  }
  return Driver::kSuccess;
}

// In pieces, so that others' kernels have a turn in between.
Driver::Result enqueue(const Gpu& gpu, const Gpus::Allreduce& all, const Watch& watch) {
  const size_t element = size_of(all.dtype);
  std::array<const void*, kGpuInputsMax> inputs{};
  std::array<void*, kGpuInputsMax> outs{};
  for (uint64_t done = 0; done < all.count;) {
    const uint64_t count = std::min(all.count - done, kPieceThereBytes / element);
    for (size_t i = 0; i < all.inputs.size(); ++i) {
      inputs[i] = std::bit_cast<const void*>(address_of(all.inputs[i], gpu) + done * element);
    }
    for (size_t i = 0; i < all.outputs.size(); ++i) {
      outs[i] = std::bit_cast<void*>(address_of(all.outputs[i], gpu) + done * element);
    }
    FoldArguments arguments = fold_arguments(all.dtype, {inputs.data(), all.inputs.size()},
                                             {outs.data(), all.outputs.size()}, count, all.divisor,
                                             {all.factors, all.factor});
    watch.put(&arguments, done);
    const auto result = gpu.launch(all.dtype, all.op, arguments);
    if (result != Driver::kSuccess) return result;
    done += count;
  }
  return Driver::kSuccess;
}

// Over the link to the host once, and then from GPU to GPU.
Driver::Result enqueue(const Gpu& gpu, const Gpus::Spread& spread) {
  const Driver& driver = gpu.driver();
  const auto here = std::find_if(spread.outputs.begin(), spread.outputs.end(),
                                 [&](const GpuRange& output) { return &gpu_of(output) == &gpu; });
  for (uint64_t done = 0; done < spread.bytes;) {
    const uint64_t bytes = std::min(spread.bytes - done, kPieceBytes);
    const Driver::Address first = address_of(*here, gpu) + done;
    auto result = driver.copy_to_device(first, spread.from + done, bytes, gpu.stream());
    for (auto output = spread.outputs.begin(); output != spread.outputs.end(); ++output) {
      if (result != Driver::kSuccess) return result;
      if (output == here) continue;
      result = driver.copy_between(address_of(*output, gpu) + done, first, bytes, gpu.stream());
    }
    if (result != Driver::kSuccess) return result;
    done += bytes;
  }
  return Driver::kSuccess;
}

}  // namespace gradring::transport::cuda
