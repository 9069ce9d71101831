# A Kria KV260: the K26 module on its carrier. `millrace image build kv260` runs this in Vivado, with a folder and the build hash.
#
# Settings are those of board.toml; a test compares them. Needs Vivado. Not built with Vivado or run on a board yet.

set here [file dirname [file normalize [info script]]]
source [file join $here .. zynqmp build.tcl]

set settings {
    part xck26-sfvc784-2LV-c
    board_part xilinx.com:kv260_som:part0:1.4
    megahertz 200
    base 0xA0000000
    parameters {
        KEY_W 64
        W 1
        PROBERS 4
        INDEX_DEPTH 16384
        DATA_W 128
    }
}
dict set settings constraints [file join $here kv260.xdc]

millrace::main $settings $argv
