/*
 * Stacks of C++, as they are while exceptions are on their way.
 *
 *     thrown SECONDS
 *
 * spends as much CPU time in each of four functions, named leaf_*: called while an exception is being handled, by a destructor
 * while the stack is unwound for one, through a virtual call, and by a function object of the library.
 */
#include <functional>
#include <memory>
#include <stdexcept>

#include "common.h"

#define AFTER_CALL(x) __asm__ volatile("" : "+r"(x))
#define KNOWN extern "C" OWN_FRAME

KNOWN int64_t leaf_caught(int64_t ns) { return work_for(ns); }
KNOWN int64_t leaf_unwinding(int64_t ns) { return work_for(ns); }
KNOWN int64_t leaf_virtual(int64_t ns) { return work_for(ns); }
KNOWN int64_t leaf_called(int64_t ns) { return work_for(ns); }

KNOWN int64_t thrower(int depth)
{
	if (depth == 0)
		throw std::runtime_error("on purpose");
	int64_t took = thrower(depth - 1);
	AFTER_CALL(took);
	return took + 1;
}

KNOWN int64_t catching(int64_t ns)
{
	int64_t took = 0;

	try {
		took = thrower(20);
	} catch (const std::runtime_error &error) {
		took = leaf_caught(ns);
		AFTER_CALL(took);
	}
	return took;
}

KNOWN int64_t destroyed(int64_t ns)
{
	int64_t took = leaf_unwinding(ns);

	AFTER_CALL(took);
	return took;
}

struct Guard {
	int64_t ns;
	~Guard() { destroyed(ns); }
};

KNOWN int64_t cleaning(int64_t ns)
{
	Guard guard{ns};

	return thrower(20);
}

KNOWN int64_t unwound(int64_t ns)
{
	int64_t took = 0;

	try {
		took = cleaning(ns);
	} catch (...) {
		AFTER_CALL(took);
	}
	return took;
}

struct Base {
	virtual int64_t run(int64_t ns) = 0;
	virtual ~Base() {}
};

struct Derived : Base {
	OWN_FRAME int64_t run(int64_t ns) override
	{
		int64_t took = leaf_virtual(ns);

		AFTER_CALL(took);
		return took;
	}
};

KNOWN int64_t dispatched(Base *base, int64_t ns)
{
	int64_t took = base->run(ns);

	AFTER_CALL(took);
	return took;
}

KNOWN int64_t called(int64_t ns)
{
	std::function<int64_t(int64_t)> object = [](int64_t ns) {
		int64_t took = leaf_called(ns);

		AFTER_CALL(took);
		return took;
	};
	int64_t took = object(ns);

	AFTER_CALL(took);
	return took;
}

int main(int argc, char **argv)
{
	int64_t each = (int64_t)((argc > 1 ? atof(argv[1]) : 1) * 1e9 / 4);
	std::unique_ptr<Base> base(new Derived);

	catching(each);
	unwound(each);
	dispatched(base.get(), each);
	return called(each) == 0;
}
