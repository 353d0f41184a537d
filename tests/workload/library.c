/* The shared library of split.c: one function that takes time. */
#include "common.h"

OWN_FRAME int64_t library_spin(int64_t ns)
{
	return work_for(ns);
}
