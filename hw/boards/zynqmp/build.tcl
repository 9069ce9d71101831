# Builds bitstream and hardware description for a Zynq UltraScale+ board; needs Vivado. Board folders source this file.
#
# millrace::build SETTINGS OUT HASH writes OUT/millrace.bit and OUT/millrace.hwh. A build that misses its clock fails.

source [file join [file dirname [file normalize [info script]]] block_design.tcl]

namespace eval millrace {
    variable here [file dirname [file normalize [info script]]]
}

# settings: as for block_design, plus part; hash: 16 hexadecimal digits, the value of BUILD_HASH.
proc millrace::build {settings out hash} {
    variable here
    if {![regexp {^[0-9a-f]{16}$} $hash]} {
        error "build hash '$hash': give the 16 digits that `millrace image build` names"
    }
    set hw [file dirname [file dirname $here]]
    dict set settings parameters BUILD_HASH "0x$hash"

    create_project -force -part [dict get $settings part] millrace [file join $out project]
    set_property board_part [dict get $settings board_part] [current_project]
    add_files [lsort [glob [file join $hw rtl *.sv]]]
    add_files [lsort [glob [file join $hw rtl *.svh]]]
    add_files [file join $here bisort_engine_bd.v]
    add_files -fileset constrs_1 [dict get $settings constraints]
    set_property include_dirs [file join $hw rtl] [current_fileset]
    update_compile_order -fileset sources_1

    millrace::block_design $settings
    make_wrapper -files [get_files millrace.bd] -top -import
    set_property top millrace_wrapper [current_fileset]
    update_compile_order -fileset sources_1

    launch_runs impl_1 -to_step write_bitstream -jobs 4
    wait_on_run impl_1
    if {[get_property PROGRESS [get_runs impl_1]] ne "100%"} {
        error "implementation failed: see [file join $out project]"
    }
    open_run impl_1
    set slack [get_property SLACK [get_timing_paths -delay_type max]]
    if {$slack < 0} {
        error "timing is missed by $slack ns: lower megahertz in the board's build.tcl and board.toml"
    }
    set run [file join $out project millrace.runs impl_1]
    file copy -force [file join $run millrace_wrapper.bit] [file join $out millrace.bit]
    set description [glob [file join $out project millrace.gen sources_1 bd millrace hw_handoff *.hwh]]
    file copy -force [lindex $description 0] [file join $out millrace.hwh]
    report_utilization -file [file join $out utilization.rpt]
    report_timing_summary -file [file join $out timing.rpt]
}

# Entry point of a board's script: takes its settings, and the folder and hash from the command line.
proc millrace::main {settings arguments} {
    if {[llength $arguments] != 2} {
        error "usage: vivado -mode batch -source build.tcl -tclargs OUT HASH"
    }
    millrace::build $settings {*}$arguments
}
