// SPDX-License-Identifier: Apache-2.0 OR MIT
// Decodes an Intel PT trace, given in hex as the only argument, with libipt. The bytes of the code come from whoever
// runs this:
//     ? IP SIZE TIME      is written where libipt's image callback asks; answered by one line of hex, empty for none
//     = IP BYTES          is written for each instruction of the trace
//     ! MESSAGE           when the trace does not go with the code
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <intel-pt.h>

static struct pt_insn_decoder *decoder;

// Reads hex digits in pairs; answers how many bytes there were.
static size_t from_hex(const char *hex, uint8_t *bytes, size_t room)
{
	unsigned byte;
	size_t n = 0;

	while (n < room && sscanf(hex + 2 * n, "%2x", &byte) == 1)
		bytes[n++] = (uint8_t)byte;
	return n;
}

static int read_memory(uint8_t *buffer, size_t size, const struct pt_asid *asid, uint64_t ip, void *context)
{
	static char line[4096];
	uint64_t time = 0;
	size_t n;

	(void)asid;
	(void)context;
	pt_insn_time(decoder, &time, NULL, NULL);
	printf("? %" PRIx64 " %zu %" PRIu64 "\n", ip, size, time);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return -pte_nomap;
	n = from_hex(line, buffer, size);
	return n ? (int)n : -pte_nomap;
}

static int fail(int status)
{
	printf("! %s\n", pt_errstr(pt_errcode(status)));
	return 0;
}

int main(int argc, char **argv)
{
	static uint8_t trace[4096];
	struct pt_config config;
	struct pt_image *image = pt_image_alloc(NULL);
	int status;

	if (argc != 2 || !image)
		return 2;
	pt_config_init(&config);
	config.begin = trace;
	config.end = trace + from_hex(argv[1], trace, sizeof(trace));
	decoder = pt_insn_alloc_decoder(&config);
	if (!decoder || pt_image_set_callback(image, read_memory, NULL) < 0 || pt_insn_set_image(decoder, image) < 0)
		return 2;
	status = pt_insn_sync_forward(decoder);
	while (status >= 0 && !(status & pts_eos)) {
		struct pt_insn insn;
		struct pt_event event;

		if (status & pts_event_pending) {
			status = pt_insn_event(decoder, &event, sizeof(event));
			continue;
		}
		memset(&insn, 0, sizeof(insn));
		status = pt_insn_next(decoder, &insn, sizeof(insn));
		if (insn.iclass == ptic_error)
			break;
		printf("= %" PRIx64 " ", insn.ip);
		for (int i = 0; i < insn.size; i++)
			printf("%02x", insn.raw[i]);
		printf("\n");
	}
	return status < 0 && status != -pte_eos ? fail(status) : 0;
}
