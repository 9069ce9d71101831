# A ZCU104: Zynq UltraScale+ XCZU7EV. `millrace image build zcu104` runs this in Vivado, with a folder and the build hash.
#
# Settings are those of board.toml; a test compares them. Needs Vivado. Not built with Vivado or run on a board yet.

set here [file dirname [file normalize [info script]]]
source [file join $here .. zynqmp build.tcl]

set settings {
    part xczu7ev-ffvc1156-2-e
    board_part xilinx.com:zcu104:part0:1.1
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
dict set settings constraints [file join $here zcu104.xdc]

millrace::main $settings $argv
