/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The few of the kernel's symbols that a recording wants to know as it begins: where the kernel's own text is, and the text
 * that is no program's and came before. As text, /proc/kallsyms makes the kernel format a hundred thousand lines for them.
 */
#ifndef AFTERIMAGE_SYMBOLS_H
#define AFTERIMAGE_SYMBOLS_H

/* Whether a symbol of the kernel itself is one of the bounds of its text. */
static __always_inline bool ai_is_bound(struct kallsym_iter *symbol)
{
	char n[8] = {};

	if (symbol->name[0] != '_' || (symbol->name[1] != 't' && symbol->name[1] != 's' && symbol->name[1] != 'e'))
		return false;
	bpf_probe_read_kernel_str(n, sizeof(n), symbol->name);
	if (n[1] == 't') /* _text */
		return n[2] == 'e' && n[3] == 'x' && n[4] == 't' && !n[5];
	/* _stext, _etext */
	return n[2] == 't' && n[3] == 'e' && n[4] == 'x' && n[5] == 't' && !n[6];
}

/* Whether a symbol is text of BPF, ftrace or kprobes. Programs are read by their ids. */
static __always_inline bool ai_is_generated(struct kallsym_iter *symbol)
{
	if (symbol->module_name[0] == '_' && symbol->module_name[1] == '_')
		return true;
	/* bpf_prog_… */
	return symbol->module_name[0] == 'b' && symbol->module_name[1] == 'p' && symbol->module_name[2] == 'f' &&
	       !symbol->module_name[3] && symbol->name[4] != 'p';
}

static __u64 ai_last_symbol;

/*
 * When nothing is left the kernel runs the program once more, with what it tried last: the owner is that of pages of
 * probes by then, and the rest is of the symbol before.
 */
static __always_inline bool ai_is_the_end(struct kallsym_iter *symbol)
{
	__u64 before = ai_last_symbol;

	ai_last_symbol = symbol->value;
	return symbol->value == before && symbol->module_name[0] == '_';
}

SEC("iter/ksym")
int ai_symbols(struct bpf_iter__ksym *ctx)
{
	struct kallsym_iter *symbol = ctx->ksym;

	if (!symbol || ai_is_the_end(symbol))
		return 0;
	if (!(symbol->module_name[0] ? ai_is_generated(symbol) : ai_is_bound(symbol)))
		return 0;
	struct ai_symbol found = {};

	found.address = symbol->show_value ? symbol->value : 0;
	bpf_probe_read_kernel_str(found.owner, sizeof(found.owner), symbol->module_name);
	bpf_probe_read_kernel_str(found.name, sizeof(found.name), symbol->name);
	/* Where the buffer has no room the kernel comes again with the same symbol. */
	if (bpf_seq_write(ctx->meta->seq, &found, sizeof(found)))
		ai_last_symbol = 0;
	return 0;
}

#endif
