#!/usr/bin/env python3
"""Tiny models of every family with random shapes, switches and weights, judged by Transformers.

    python tests/libraries/random_models.py --berth build/release/cli/berth [--seeds 1:3] [FAMILY...]

Each golden family (shared/golden/models/make_models.py, whose weights it borrows) x each seed: another config of the class
(heads, widths, biases, ties, activations, every rope scaling, windows, layer types, experts, caps), saved by the library in
float32, bfloat16 or float16, and once more beside the config as people publish it. Berth's logits of a prompt must be those of
the library's float32 model that was loaded from the same folder, and so must 24 greedy tokens where their margin is clear.
What the library itself cannot build, load or run is skipped by name; what Berth refuses as unsupported is counted and shown.
Needs transformers, torch and safetensors; exit 77 without them.
"""
import argparse
import copy
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import zlib

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("BERTH_SHARED", SOURCE.parent / "shared"))
sys.path.insert(0, str(SHARED / "golden/models"))
try:
    import make_models as mm
    import torch
    import transformers
    from safetensors import safe_open
    from safetensors.torch import save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

BERTH = str(SOURCE / "build/release/cli/berth")
WORK = ""  # a temporary folder, set in main()
S, F = (mm.S, mm.F)


def rope_kinds(r, dim, theta=None):
    k = r.choice(['none', 'none', 'linear', 'dynamic', 'yarn', 'yarn2', 'llama3', 'longrope', 'proportional'])
    o = r.choice([16, 32, 48, 100])
    if k == 'none':
        return None
    key = r.choice(['rope_type', 'type'])
    if k == 'linear':
        return {key: 'linear', 'factor': r.choice([1.0, 2.0, 3.5, 4])}
    if k == 'dynamic':
        return {key: 'dynamic', 'factor': r.choice([1.5, 2.0, 4.0])}
    if k == 'yarn':
        return {key: 'yarn', 'factor': r.choice([2.0, 4.0, 8]), 'original_max_position_embeddings': o}
    if k == 'yarn2':
        d = {key: 'yarn', 'factor': r.choice([2.0, 40.0]), 'original_max_position_embeddings': o, 'beta_fast': r.choice([4, 8, 32.0]), 'beta_slow': r.choice([0.5, 1, 2])}
        if r.random() < 0.4:
            d['attention_factor'] = r.choice([1.0, 0.8, 1.3])
        if r.random() < 0.4:
            d['truncate'] = r.choice([True, False])
        if r.random() < 0.5:
            d['mscale'] = r.choice([1.0, 0.7])
        if r.random() < 0.5:
            d['mscale_all_dim'] = r.choice([1.0, 0.7, 0.5])
        return d
    if k == 'llama3':
        return {key: 'llama3', 'factor': r.choice([2.0, 8.0, 32]), 'low_freq_factor': 1.0, 'high_freq_factor': r.choice([2.0, 4.0]), 'original_max_position_embeddings': o}
    if k == 'longrope':
        d = {key: 'longrope', 'short_factor': [round(1 + r.random(), 3) for _ in range(dim // 2)], 'long_factor': [round(1 + 5 * r.random(), 3) for _ in range(dim // 2)], 'original_max_position_embeddings': o}
        if r.random() < 0.4:
            d['factor'] = r.choice([2.0, 4.0])
        if r.random() < 0.4:
            d['attention_factor'] = r.choice([1.0, 1.2])
        return d
    if k == 'proportional':
        d = {key: 'proportional'}
        if r.random() < 0.7:
            d['partial_rotary_factor'] = r.choice([0.25, 0.5, 0.75, 1.0])
        if r.random() < 0.5:
            d['factor'] = r.choice([2.0, 4.0])
        return d


ACTS = ['silu', 'silu', 'silu', 'gelu', 'gelu_pytorch_tanh', 'gelu_new', 'relu', 'swish', 'gelu_fast', 'gelu_python']


def rand_sizes(r):
    s = copy.deepcopy(mm.SIZES)
    for k in 'ABCMPQR':
        if k in 'QR':
            continue
        hd = r.choice([8, 12, 16, 20, 24, 32, 40, 64])
        nk = r.choice([1, 2, 3, 4])
        nq = nk * r.choice([1, 2, 3, 4])
        if k in 'M':
            nk = nq = r.choice([2, 3, 4, 6])
        if k == 'P':
            nk = nq = r.choice([3, 5, 6, 7, 8, 12])
        H = nq * hd
        if k in 'BC':
            H = nq * r.choice([8, 12, 10, 14])
        s[k] = dict(H=H, d=hd, nq=nq, nk=nk, I=r.choice([48, 56, 96, 112, 130, 161, 200]))
    s['L'] = r.choice([2, 3, 4])
    s['V'] = r.choice([61, 97, 128, 203, 257, 320])
    s['E'] = r.choice([3, 4, 6, 8])
    s['Ie'] = r.choice([16, 24, 32, 40, 48])
    s['W'] = r.choice([2, 2, 3, 5, 9, 16, 33, 64])
    s['eps'] = r.choice([1e-06, 1e-05, 0.002, 0.005])
    s['theta'] = r.choice([1000.0, 7000.0, 10000.0, 500000.0, 1000000.0])
    s['cap'] = r.choice([1.0, 6.0, 30.0])
    s['clamp'] = r.choice([1.0, 2.5, 7.0])
    return s


def mutate(name, pub, r, z):
    """changes pub in place; returns a short description"""
    base = pub
    t = pub.get('text_config', pub)
    mt = t['model_type']
    hd = t.get('head_dim')
    H = t.get('hidden_size', t.get('n_embd'))
    nq = t.get('num_attention_heads', t.get('n_head'))
    if not hd:
        hd = H // nq

    def maybe(p):
        return r.random() < p
    llamaish = {'llama', 'mistral', 'qwen2', 'qwen3', 'phi3', 'granite', 'smollm3', 'olmo2', 'mixtral', 'qwen3_moe', 'qwen2_moe', 'stablelm', 'phi', 'gemma', 'gemma2', 'cohere2', 'gpt_neox', 'qwen3_next', 'minimax_m2', 'gpt_oss', 'falcon'}
    if mt in llamaish:
        part = 1.0
        if mt in ('phi', 'stablelm', 'gpt_neox', 'qwen3_next'):
            part = r.choice([0.25, 0.5, 0.4, 0.75, 1.0])
            dim = int(hd * part)
            if dim % 2 or dim < 2:
                part = 0.5
                dim = int(hd * part)
            if dim % 2 or dim < 2:
                part = 1.0
            if mt == 'gpt_neox':
                t['rotary_pct'] = part
            else:
                t['partial_rotary_factor'] = part
        if mt == 'phi3' and maybe(0.4):
            part = r.choice([0.5, 0.75])
            if int(hd * part) % 2:
                part = 1.0
            t['partial_rotary_factor'] = part
        if not (mt == 'falcon' and t.get('alibi')) and maybe(0.6):
            rs = rope_kinds(r, int(hd * part))
            if rs and rs.get('partial_rotary_factor') and (part != 1.0):
                rs.pop('partial_rotary_factor')
            if mt == 'phi3':
                if rs and rs.get('rope_type', rs.get('type')) != 'longrope':
                    rs = None
                if rs and rs.get('rope_type', rs.get('type')) == 'longrope':
                    t['original_max_position_embeddings'] = rs['original_max_position_embeddings']
                    for k in ('factor', 'attention_factor'):
                        rs.pop(k, None)
            if rs and rs.get('rope_type', rs.get('type')) in ('dynamic', 'longrope'):
                t['max_position_embeddings'] = r.choice([24, 48, 128, 512])
            t['rope_scaling'] = rs
        if mt in ('llama', 'granite', 'smollm3'):
            t['attention_bias'] = maybe(0.5)
            t['mlp_bias'] = maybe(0.5)
        if mt in ('qwen3', 'gemma', 'gemma2', 'olmo2', 'qwen3_moe', 'cohere2', 'gpt_oss', 'gpt_neox', 'qwen3_next'):
            t['attention_bias'] = maybe(0.5)
        if mt != 'falcon':
            t['tie_word_embeddings'] = maybe(0.5)
        elif maybe(0.5):
            t['tie_word_embeddings'] = maybe(0.5)
        if mt not in ('gpt_oss', 'minimax_m2'):
            key = 'activation' if mt == 'falcon' else 'hidden_activation' if mt == 'gemma2' else 'hidden_act'
            if mt == 'gemma':
                if maybe(0.5):
                    t[key] = t['hidden_activation'] = r.choice(ACTS)
            elif maybe(0.4):
                t[key] = r.choice(ACTS)
    if mt == 'llama':
        if maybe(0.3):
            t['head_dim'] = r.choice([8, 16, 24, 36])
    if mt == 'mistral':
        t['sliding_window'] = r.choice([None, z.W, 4096])
        if maybe(0.3):
            t['layer_types'] = [r.choice([S, F]) for _ in range(t['num_hidden_layers'])]
    if mt == 'phi3':
        t['sliding_window'] = r.choice([None, z.W])
    if mt in ('qwen2', 'qwen3', 'qwen2_moe'):
        t['use_sliding_window'] = maybe(0.6)
        t['sliding_window'] = r.choice([None, z.W]) if not t['use_sliding_window'] else z.W
        t['max_window_layers'] = r.choice([0, 1, 2, 99])
        if maybe(0.3):
            t['layer_types'] = [r.choice([S, F]) for _ in range(t['num_hidden_layers'])]
    if mt == 'qwen3_moe':
        t['use_sliding_window'] = maybe(0.5)
        t['sliding_window'] = z.W
        if maybe(0.3):
            t['layer_types'] = [r.choice([S, F]) for _ in range(t['num_hidden_layers'])]
    if mt in ('qwen2_moe', 'qwen3_moe', 'qwen3_next'):
        n = t['num_experts'] = r.choice([1, 2, 4, 5, 8])
        t['num_experts_per_tok'] = r.randint(1, n)
        t['norm_topk_prob'] = maybe(0.5)
        t['decoder_sparse_step'] = r.choice([1, 1, 2, 3])
        t['mlp_only_layers'] = [i for i in range(t['num_hidden_layers']) if maybe(0.3)]
        if mt == 'qwen2_moe':
            t['qkv_bias'] = maybe(0.6)
            t['shared_expert_intermediate_size'] = r.choice([16, 40, 64])
        if mt == 'qwen3_next':
            t['shared_expert_intermediate_size'] = r.choice([16, 40, 64])
    if mt == 'mixtral':
        n = t['num_local_experts'] = r.choice([2, 3, 4, 8])
        t['num_experts_per_tok'] = r.randint(1, n)
        t['sliding_window'] = r.choice([None, z.W])
    if mt == 'gemma2':
        if maybe(0.4):
            t['attn_logit_softcapping'] = r.choice([None, 1.0, 50.0])
        if maybe(0.4):
            t['final_logit_softcapping'] = r.choice([None, 1.0, 30.0])
        t['query_pre_attn_scalar'] = r.choice([8, 20, hd, 144])
        if maybe(0.4):
            t['layer_types'] = [r.choice([S, F]) for _ in range(t['num_hidden_layers'])]
    if mt == 'gemma3_text':
        rs = rope_kinds(r, hd)
        t['rope_scaling'] = rs
        t['attention_bias'] = maybe(0.5)
        if maybe(0.4):
            t['final_logit_softcapping'] = r.choice([1.0, 30.0])
        if maybe(0.3):
            t['attn_logit_softcapping'] = r.choice([1.0, 50.0])
        t['query_pre_attn_scalar'] = r.choice([8, 20, hd, 144])
        if maybe(0.4):
            t['layer_types'] = [r.choice([S, F]) for _ in range(t['num_hidden_layers'])]
        else:
            t['sliding_window_pattern'] = r.choice([1, 2, 3, 6])
        if name == 'gemma3_text':
            t['tie_word_embeddings'] = maybe(0.6)
        else:
            pub['tie_word_embeddings'] = maybe(0.6)
        if maybe(0.4):
            t['hidden_activation'] = r.choice(ACTS)
    if mt == 'gemma3n_text':
        L = t['num_hidden_layers'] = r.choice([3, 4, 5, 7])
        while 1:
            lt = [r.choice([S, F]) for _ in range(L)]
            sh = r.choice([0, 1, 2])
            if sh >= L - 1:
                continue
            if all((x in lt[:L - sh] for x in lt[L - sh:])):
                break
        t['layer_types'] = lt
        t['num_kv_shared_layers'] = sh
        I = r.choice([48, 96, 112])
        t['intermediate_size'] = r.choice([I, [I] * L])
        t['activation_sparsity_pattern'] = r.choice([None, 0.0, [r.choice([0.0, 0.5, 0.9, 0.95]) for _ in range(L)]])
        if t['activation_sparsity_pattern'] is None:
            t['activation_sparsity_pattern'] = [0.0] * L
        A = t['altup_num_inputs'] = r.choice([2, 3, 4])
        t['altup_active_idx'] = r.randrange(A)
        t['altup_correct_scale'] = maybe(0.6)
        t['laurel_rank'] = r.choice([4, 16])
        t['hidden_size_per_layer_input'] = r.choice([8, 16, 20])
        t['final_logit_softcapping'] = r.choice([None, 1.0, 30.0])
        t['attention_bias'] = maybe(0.4)
        t['tie_word_embeddings'] = maybe(0.7)
        if maybe(0.4):
            t['hidden_activation'] = r.choice(ACTS)
        if maybe(0.3):
            t['altup_coef_clip'] = r.choice([None, 0.1, 120.0])
    if mt == 'gemma4_text':
        L = r.choice([2, 3, 4, 6])
        sh0 = t.get('num_kv_shared_layers', 0)
        while 1:
            lt = [r.choice([S, F]) for _ in range(L - 1)] + [F]
            sh = r.choice([0, 1, 2, 3])
            if sh >= L - 1:
                continue
            if all((x in lt[:L - sh] for x in lt[L - sh:])):
                break
        if name in ('gemma4_31b', 'gemma4_26b_a4b'):
            sh = 0
        t['num_hidden_layers'] = L
        t['layer_types'] = lt
        t['num_kv_shared_layers'] = sh
        t['attention_bias'] = maybe(0.4)
        t['final_logit_softcapping'] = r.choice([None, 1.0, 30.0])
        t['global_head_dim'] = r.choice([16, 32, 40])
        t['attention_k_eq_v'] = maybe(0.5)
        t['num_global_key_value_heads'] = r.choice([None, 1, t['num_key_value_heads']]) if t['attention_k_eq_v'] else None
        t['hidden_size_per_layer_input'] = r.choice([0, 8, 16])
        t['use_double_wide_mlp'] = maybe(0.4)
        t['enable_moe_block'] = maybe(0.35)
        if t['enable_moe_block']:
            n = t['num_experts'] = r.choice([2, 3, 4, 8])
            t['top_k_experts'] = r.randint(1, n)
            t['moe_intermediate_size'] = r.choice([16, 24, 32])
        p = r.choice([0.25, 0.5, 1.0])
        t['rope_parameters'] = {F: dict(partial_rotary_factor=p, rope_theta=90000.0, rope_type='proportional'), S: dict(rope_theta=3000.0, rope_type='default')}
        if maybe(0.2):
            t['rope_parameters'][F]['factor'] = 4.0
        if maybe(0.4):
            t['hidden_activation'] = r.choice(ACTS)
        if name == 'gemma4_text_e4b':
            t['tie_word_embeddings'] = maybe(0.7)
    if mt == 'cohere2':
        t['logit_scale'] = r.choice([0.0625, 0.7, 1.0, 2.0])
        if maybe(0.5):
            t['layer_types'] = [r.choice([S, F]) for _ in range(t['num_hidden_layers'])]
        else:
            t['sliding_window_pattern'] = r.choice([1, 2, 3, 4])
    if mt == 'granite':
        t['attention_multiplier'] = r.choice([0.015, 0.15, 1.0])
        t['embedding_multiplier'] = r.choice([1.0, 3.0, 12.0])
        t['residual_multiplier'] = r.choice([0.22, 1.0, 0.6])
        t['logits_scaling'] = r.choice([0.5, 1.0, 8.0])
    if mt == 'smollm3':
        L = t['num_hidden_layers']
        t['no_rope_layers'] = r.choice([None, [r.choice([0, 1]) for _ in range(L)], []])
        t['no_rope_layer_interval'] = r.choice([1, 2, 3, 4])
        if t['no_rope_layers'] is None:
            t.pop('no_rope_layers')
        t['use_sliding_window'] = maybe(0.5)
        t['sliding_window'] = z.W if t['use_sliding_window'] else r.choice([None, z.W])
        if maybe(0.3):
            t['layer_types'] = [r.choice([S, F]) for _ in range(L)]
    if mt == 'stablelm':
        t['use_qkv_bias'] = maybe(0.5)
        t['qk_layernorm'] = maybe(0.5)
        t['use_parallel_residual'] = maybe(0.5)
    if mt == 'phi':
        t['qk_layernorm'] = maybe(0.5)
        if maybe(0.4):
            t['num_key_value_heads'] = 1
    if mt == 'gpt_neox':
        t['use_parallel_residual'] = maybe(0.5)
        t['rotary_emb_base'] = r.choice([1000, 10000])
    if mt == 'gptj':
        t['rotary_dim'] = r.choice([2, 4, 8, hd if hd % 2 == 0 else 4])
        t['n_inner'] = r.choice([None, 100])
        t['tie_word_embeddings'] = maybe(0.5)
        t['activation_function'] = r.choice(ACTS)
        t['n_positions'] = 512
    if mt == 'gpt2':
        t['n_inner'] = r.choice([None, 100])
        t['tie_word_embeddings'] = maybe(0.6)
        t['activation_function'] = r.choice(ACTS)
        t['scale_attn_weights'] = maybe(0.6)
        t['scale_attn_by_inverse_layer_idx'] = maybe(0.4)
        t['reorder_and_upcast_attn'] = maybe(0.2)
        t['n_positions'] = 300
    if mt == 'opt':
        t['enable_bias'] = maybe(0.6)
        t['layer_norm_elementwise_affine'] = maybe(0.7)
        t['do_layer_norm_before'] = maybe(0.7)
        t['word_embed_proj_dim'] = r.choice([t['hidden_size'], t['hidden_size'] - 12, 32])
        t['activation_function'] = r.choice(ACTS)
        t['tie_word_embeddings'] = maybe(0.6)
        t['_remove_final_layer_norm'] = maybe(0.3)
        t['max_position_embeddings'] = 300
    if mt == 'bloom':
        t['apply_residual_connection_post_layernorm'] = maybe(0.4)
        t['tie_word_embeddings'] = maybe(0.6)
        t['slow_but_exact'] = maybe(0.2)
        t['pretraining_tp'] = r.choice([1, 2])
    if mt == 'falcon':
        t['parallel_attn'] = maybe(0.6)
        t['bias'] = maybe(0.5)
        arch = r.choice(['new', 'mq', 'mha'])
        t['new_decoder_architecture'] = arch == 'new'
        t['multi_query'] = arch == 'mq'
        if arch == 'new':
            t['num_kv_heads'] = r.choice([k for k in (1, 2, 3, 4, 6, 12) if nq % k == 0])
        if name == 'falcon_rw_alibi':  # the others are computed eagerly, where the library adds alibi twice
            t['alibi'] = True
        if maybe(0.3):
            t['num_ln_in_parallel_attn'] = r.choice([1, 2])
        if maybe(0.3):
            t['ffn_hidden_size'] = r.choice([100, 160])
    if mt == 'gpt_oss':
        n = t['num_local_experts'] = r.choice([2, 4, 5, 8])
        t['num_experts_per_tok'] = t['experts_per_token'] = r.randint(1, n)
        t['layer_types'] = [r.choice([S, F]) for _ in range(t['num_hidden_layers'])]
        t['attention_bias'] = maybe(0.6)
        if 'mxfp4' in name:
            t['hidden_size'] = 96
            t['intermediate_size'] = 64
    if mt == 'minimax_m2':
        n = t['num_local_experts'] = r.choice([2, 4, 5, 8])
        t['num_experts_per_tok'] = r.randint(1, n)
        t['rotary_dim'] = r.choice([4, 8, hd if hd % 2 == 0 else 4])
        if t['rotary_dim'] > hd:
            t['rotary_dim'] = hd
    if mt == 'minimax_m3_vl_text':
        n = t['num_local_experts'] = r.choice([2, 4, 5, 8])
        t['num_experts_per_tok'] = r.randint(1, n)
        t['routed_scaling_factor'] = r.choice([1.0, 2.0])
        L = t['num_hidden_layers']
        t['moe_layer_freq'] = [r.choice([0, 1]) for _ in range(L)]
        sa = t['sparse_attention_config']
        sa['sparse_topk_blocks'] = r.choice([1, 2, 3, 5])
        sa['sparse_block_size'] = r.choice([2, 4, 8])
        sa['sparse_local_block'] = r.choice([0, 1, 2])
        sa['sparse_attention_freq'] = [r.choice([0, 1]) for _ in range(L)]
        sa['sparse_num_index_heads'] = t['num_key_value_heads']
        t['swiglu_alpha'] = r.choice([1.0, 1.702])
    if mt == 'llama4_text':
        L = t['num_hidden_layers'] = r.choice([1, 2, 4, 5])
        t['attention_bias'] = maybe(0.4)
        n = t['num_local_experts'] = r.choice([2, 4, 5])
        t['num_experts_per_tok'] = r.randint(1, n)
        t['interleave_moe_layer_step'] = r.choice([1, 2, 3])
        t['use_qk_norm'] = maybe(0.6)
        t['attention_chunk_size'] = r.choice([4, 16, 17, 64])
        t['attn_temperature_tuning'] = maybe(0.6)
        t['floor_scale'] = r.choice([4, 8])
        t['attn_scale'] = r.choice([0.1, 0.3])
        if maybe(0.5):
            t['no_rope_layers'] = [r.choice([0, 1]) for _ in range(L)]
        elif maybe(0.5):
            t['no_rope_layer_interval'] = r.choice([2, 3, 4])
        rs = rope_kinds(r, hd)
        if maybe(0.5) and (not (rs and rs.get('rope_type', rs.get('type')) in ('proportional', 'dynamic', 'longrope'))):
            t['rope_scaling'] = rs
        if maybe(0.3):
            t['moe_layers'] = [i for i in range(L) if maybe(0.5)]
        if maybe(0.4):
            t['hidden_act'] = r.choice(ACTS)
    if mt == 'deepseek_v3':
        t['n_routed_experts'] = r.choice([4, 8, 12])
        t['n_group'] = r.choice([1, 2, 4])
        t['topk_group'] = r.randint(1, t['n_group'])
        per = t['n_routed_experts'] // t['n_group']
        if per < 2:
            t['n_group'] = t['topk_group'] = 1
            per = t['n_routed_experts']
        t['num_experts_per_tok'] = r.randint(1, per * t['topk_group'])
        t['n_shared_experts'] = r.choice([1, 2])
        L = t['num_hidden_layers']
        t['first_k_dense_replace'] = r.choice([0, 1, 2, L])
        t['norm_topk_prob'] = maybe(0.5)
        t['routed_scaling_factor'] = r.choice([1.0, 2.5])
        t['q_lora_rank'] = r.choice([None, 24, 32])
        t['attention_bias'] = maybe(0.4)
        t['kv_lora_rank'] = r.choice([16, 32, 48])
        t['qk_nope_head_dim'] = r.choice([8, 16, 24])
        t['qk_rope_head_dim'] = r.choice([4, 8, 16])
        t['v_head_dim'] = r.choice([8, 16, 24])
        t['rope_interleave'] = maybe(0.7)
        t['tie_word_embeddings'] = maybe(0.4)
        rs = rope_kinds(r, t['qk_rope_head_dim'])
        t['rope_scaling'] = rs
        if maybe(0.4):
            t['hidden_act'] = r.choice(ACTS)
    if mt in ('qwen3_next', 'qwen3_5_moe_text'):
        t['linear_num_key_heads'] = r.choice([1, 2, 3])
        t['linear_num_value_heads'] = t['linear_num_key_heads'] * r.choice([1, 2, 3])
        t['linear_key_head_dim'] = r.choice([8, 16, 24])
        t['linear_value_head_dim'] = r.choice([8, 16, 24])
        t['linear_conv_kernel_dim'] = r.choice([2, 3, 4])
        L = t['num_hidden_layers']
        if maybe(0.5):
            t['layer_types'] = [r.choice([F, 'linear_attention']) for _ in range(L)]
        else:
            t['full_attention_interval'] = r.choice([1, 2, 3, 4])
    if mt == 'qwen3_5_moe_text':
        n = t['num_experts'] = r.choice([2, 4, 5])
        t['num_experts_per_tok'] = r.randint(1, n)
        t['attention_bias'] = maybe(0.4)
        t['shared_expert_intermediate_size'] = r.choice([16, 40])
    return pub


def run_berth(folder, toks, ctx):
    out = folder + '/berth_logits.safetensors'
    p = folder + '/toks.json'
    json.dump(toks, open(p, 'w'))
    if os.path.exists(out):
        os.remove(out)
    e = subprocess.run([BERTH, 'eval', folder, '--tokens', p, '--logits', out, '-c', str(ctx), '--kv-dtype', 'float32', '--device-map', 'cpu', '--json', '-t', '1'], capture_output=True, text=True, timeout=120)
    if e.returncode:
        return (None, (e.returncode, (e.stdout + e.stderr)[-600:]))
    with safe_open(out, 'pt') as f:
        k = list(f.keys())
        l = f.get_tensor(k[0] if len(k) == 1 else 'logits')
    return (l, None)


def run_steps(folder, toks, n, ctx):
    p = folder + '/toks.json'
    e = subprocess.run([BERTH, 'run', folder, '--prompt-tokens', p, '-n', str(n), '-c', str(ctx), '--kv-dtype', 'float32', '--device-map', 'cpu', '--json', '-t', '1', '--ignore-eos'], capture_output=True, text=True, timeout=120)
    if e.returncode:
        return (None, (e.returncode, (e.stdout + e.stderr)[-600:]))
    return (json.loads(e.stdout), None)


HF = []


def one(name, seed, verbose=False):
    r = random.Random(seed * 100003 + zlib.crc32(name.encode()))
    spec = mm.FAMILIES[name]
    sizes = rand_sizes(r)
    z = mm.Z(sizes)
    pub = spec['make'](z)
    pub = {'architectures': [spec['cls']], **pub}
    dtn = r.choice(['float32', 'bfloat16', 'float16'])
    pub = mutate(name, pub, r, z)
    plen = r.choice([2, 2, 17, 40, 40, 200])
    cls = getattr(transformers, spec['cls'])
    cfg = cls.config_class.from_dict(json.loads(json.dumps(pub)))
    for c in [cfg] + [getattr(cfg, k) for k in ('text_config', 'vision_config', 'audio_config') if getattr(cfg, k, None) is not None]:
        c._attn_implementation = spec.get('attention', 'eager')
        c._experts_implementation = 'eager'
    torch.manual_seed(seed)
    model = cls._from_config(cfg, attn_implementation=spec.get('attention', 'eager'), dtype=torch.float32).eval()
    mm.fill(model, model.config, seed)
    dt = getattr(torch, dtn)
    keep32 = spec.get('f32', [])
    if dt != torch.float32:
        for n, p in mm.stored(model):
            if p.is_floating_point() and (not any((k in n for k in keep32))):
                p.data.copy_(p.data.to(dt).float())
    extra, drop = ({}, set())
    if spec.get('mxfp4'):
        for n, p in model.named_parameters():
            if n.endswith(('experts.gate_up_proj', 'experts.down_proj')):
                b, s, v = mm.to_mxfp4(p.data)
                p.data.copy_(v)
                extra[n + '_blocks'], extra[n + '_scales'] = (b, s)
                drop.add(n)
    if spec.get('fp8'):
        for n, m in model.named_modules():
            if isinstance(m, torch.nn.Linear) and n != 'lm_head':
                q, s, v = mm.to_fp8(m.weight.data)
                m.weight.data.copy_(v)
                extra[n + '.weight'], extra[n + '.weight_scale_inv'] = (q, s)
                drop.add(n + '.weight')
    text = model.config.get_text_config()
    hi = min(text.vocab_size - 8, getattr(text, 'vocab_size_per_layer_input', None) or 10 ** 9)
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, hi, (1, plen), generator=g)
    maxp = getattr(text, 'max_position_embeddings', 512)
    logits0 = model(input_ids=ids, use_cache=False).logits[0].float()
    d = f'{WORK}/{name}-{seed}'
    shutil.rmtree(d, ignore_errors=True)
    os.makedirs(d)
    if dt != torch.float32:
        for n, p in mm.stored(model):
            if p.is_floating_point() and (not any((k in n for k in keep32))):
                p.data = p.data.to(dt)
        for c in [model.config] + [getattr(model.config, k) for k in ('text_config', 'vision_config', 'audio_config') if getattr(model.config, k, None) is not None]:
            c.dtype = dt
    shards = r.random() < 0.1
    model.save_pretrained(d, **{'max_shard_size': '300KB'} if shards else {})
    if drop:
        tensors = mm.read_folder(d)
        for f in os.listdir(d):
            if 'safetensors' in f:
                os.remove(d + '/' + f)
        for k in drop:
            tensors.pop(k)
        tensors.update(extra)
        save_file({k: v.contiguous() for k, v in tensors.items()}, d + '/model.safetensors', metadata={'format': 'pt'})
        cj = json.load(open(d + '/config.json'))
        if spec.get('mxfp4'):
            cj['quantization_config'] = pub['quantization_config'] = {'modules_to_not_convert': ['model.layers.*.self_attn', 'model.layers.*.mlp.router', 'model.embed_tokens', 'lm_head'], 'quant_method': 'mxfp4'}
        if spec.get('fp8'):
            cj['quantization_config'] = pub['quantization_config'] = {'activation_scheme': 'dynamic', 'fmt': 'e4m3', 'quant_method': 'fp8', 'weight_block_size': [128, 128], 'modules_to_not_convert': ['lm_head']}
        json.dump(cj, open(d + '/config.json', 'w'))
    elif name == 'qwen3_5_moe' and r.random() < 0.5 and (not shards):
        tensors = mm.read_folder(d)
        try:
            tensors, _ = mm.fuse_experts(tensors, text)
            save_file({k: v.contiguous() for k, v in tensors.items()}, d + '/model.safetensors', metadata={'format': 'pt'})
        except Exception:
            pass
    dp = d + '.pub'
    shutil.rmtree(dp, ignore_errors=True)
    os.makedirs(dp)
    for f in os.listdir(d):
        if f != 'config.json':
            os.symlink(d + '/' + f, dp + '/' + f)
    for k in ('text_config',):
        if k in pub:
            pub[k].setdefault('dtype', dtn)
    pub.setdefault('torch_dtype', dtn)
    json.dump(pub, open(dp + '/config.json', 'w'), indent=1)
    bad = []
    kw = {}
    if spec.get('mxfp4'):
        kw['quantization_config'] = transformers.Mxfp4Config(dequantize=True)
    if spec.get('fp8'):
        kw['quantization_config'] = transformers.FineGrainedFP8Config(dequantize=True)

    def ref(folder):
        m = cls.from_pretrained(folder, dtype=torch.float32, attn_implementation=spec.get('attention', 'eager'), experts_implementation='eager', **kw).eval()
        logits = m(input_ids=ids, use_cache=False).logits[0].float()
        toks, glog, marg = mm.greedy(m, ids)
        full = torch.cat([ids, toks[None, :-1]], 1)
        rec = torch.stack([m(input_ids=full[:, :plen + t], use_cache=False).logits[0, -1].float() for t in range(mm.NEW)])
        return (logits, toks, marg, rec, float((rec - glog).abs().max()))
    tl = [int(x) for x in ids[0]]
    ctx = plen + 30
    compared = 0
    for which, folder in (('saved', d), ('published', dp)):
        try:
            logits, toks, marg, rec, rdiff = ref(folder)
        except Exception as e:
            if name in ('qwen3_fp8_edge',):
                logits = logits0
            HF.append(f'{name}-{seed} {which} reload {type(e).__name__} {str(e)[:100]}')
            continue
        big = float(logits.abs().max())
        compared += 1
        if float((logits - logits0).abs().max()) > 1e-05 * big:
            HF.append(f'{name}-{seed} {which}: reload differs from the model saved {float((logits - logits0).abs().max()):.1e}')
        l, err = run_berth(folder, tl, ctx)
        if err:
            bad.append(f'{which}: eval {err}')
            continue
        if l.shape != logits.shape:
            bad.append(f'{which}: shape {l.shape} {logits.shape}')
            continue
        diff = float((l - logits).abs().max())
        tol = 0.0002 * big
        if not diff <= tol:
            bad.append(f'{which}: logits differ {diff:.3e} of {big:.3f}')
        out, err = run_steps(folder, tl, mm.NEW, ctx)
        if err:
            bad.append(f'{which}: run {err}')
            continue
        got = out.get('tokens') or out.get('generated_tokens') or out.get('generated')
        if got is None:
            bad.append('keys ' + str(list(out)))
            continue
        want = [int(x) for x in toks]
        i = next((i for i in range(len(want)) if i >= len(got) or got[i] != want[i]), None)
        if i is not None and (i >= len(got) or float(marg[i]) > 0.001 * big):
            bad.append(f'{which}: token {i} differs: {got[i:i + 3]} {want[i:i + 3]} margin {float(marg[i]):.4f} recompute says {int(rec[i].argmax())} (cached vs recomputed {rdiff:.1e})')
    if not compared:
        raise RuntimeError('it cannot reload what it saved')
    if not bad:
        shutil.rmtree(d)
        shutil.rmtree(dp)
    return (bad, pub, plen, dtn)


def main():
    global BERTH, WORK
    parser = argparse.ArgumentParser()
    parser.add_argument("--berth", default=BERTH)
    parser.add_argument("--seeds", default="1:2", help="FIRST:END")
    parser.add_argument("--keep", help="a folder in which failing cases stay")
    parser.add_argument("families", nargs="*")
    args = parser.parse_args()
    BERTH = args.berth
    first, end = map(int, args.seeds.split(":"))
    count = {"equal": 0, "refused": 0, "different": 0, "skipped": 0}
    with tempfile.TemporaryDirectory() as work:
        WORK = args.keep or work
        for name in args.families or mm.FAMILIES:
            for seed in range(first, end):
                try:
                    bad = one(name, seed)[0]
                except Exception as error:  # the library's own: such a config does not exist
                    count["skipped"] += 1
                    print(f"skipped    {name} {seed}: the library: {type(error).__name__}: {str(error).splitlines()[0][:120]}", flush=True)
                    continue
                kind = "equal" if not bad else "refused" if all('"unsupported"' in b for b in bad) else "different"
                count[kind] += 1
                print(f"{kind:10} {name} {seed}" + "".join(f"\n    {b[:400]}" for b in bad), flush=True)
    for line in HF:
        print(f"the library with itself: {line}")
    print(", ".join(f"{n} {k}" for k, n in count.items()))
    return 1 if count["different"] or not count["equal"] else 0


if __name__ == "__main__":
    sys.exit(main())
