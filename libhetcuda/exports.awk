# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
# From the list of the driver's functions: exports.inc, which C and assembler
# read with their own meaning of HETCUDA_EXPORT, or (-v format=map) the linker's
# list of what the library exports. The order of the lines is the index of a
# function, and means nothing outside of one build.

/^#/ || NF == 0 { next }
NF != 1 || !/^cu[A-Za-z0-9_]+$/ { printf "%s:%d: not a name: %s\n", FILENAME, FNR, $0 > "/dev/stderr"; bad = 1; exit 1 }
seen[$1]++ { printf "%s:%d: %s is there twice\n", FILENAME, FNR, $1 > "/dev/stderr"; bad = 1; exit 1 }
{ name[n++] = $1 }

END {
	if (bad)
		exit 1
	if (format == "map") {
		print "{"
		print "global:"
		for (i = 0; i < n; i++)
			print "\t" name[i] ";"
		print "local:"
		print "\t*;"
		print "};"
		exit
	}
	print "#ifndef HETCUDA_EXPORT_DEBUGGER"
	print "#define HETCUDA_EXPORT_DEBUGGER(name) HETCUDA_EXPORT(name)"
	print "#endif"
	for (i = 0; i < n; i++)
		print (name[i] ~ /^cudbg/ ? "HETCUDA_EXPORT_DEBUGGER(" : "HETCUDA_EXPORT(") name[i] ")"
}
