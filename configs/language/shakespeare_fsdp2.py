# The same model, its weights divided among two processes by torch's fully_shard:
#
#     torchrun --standalone --nproc_per_node 2 tools/train.py configs/language/shakespeare_fsdp2.py --launcher pytorch
#
# Each process takes half of the batch, and each of the four blocks is gathered separately.

_base_ = './shakespeare.py'

data = dict(batch_size=8)
model_wrapper = dict(type='FSDP2', module_classes=['Block'])
