# Stubs of Vivado's commands, to check a build script: `tclsh vivado_stub.tcl SCRIPT OUT HASH PORTS`.
#
# Implements the commands that the scripts use, their options, and the pins of the cells they create; PORTS are the parameters of
# bisort_engine_bd. Anything else is an error: an unknown command or option, a missing cell or pin, an unconnected input, a missing
# file. Commands and options are those of Vivado 2022.2 (UG835), pins those of the IP's product guides (zynq_ultra_ps_e: PG201,
# proc_sys_reset: PG164, smartconnect: PG247). Prints every property that was set to stdout, a name and a value per line,
# separated by a tab.

lassign $argv script out hash ports

set options {
    create_project {-force -part}
    set_property {-dict}
    add_files {-fileset}
    update_compile_order {-fileset}
    create_bd_cell {-type -vlnv -reference}
    apply_bd_automation {-rule -config}
    make_wrapper {-files -top -import}
    launch_runs {-to_step -jobs}
    get_timing_paths {-delay_type}
    report_utilization {-file}
    report_timing_summary {-file}
}
# By kind of cell: pins that must be driven, pins that drive, and interfaces (all of which must be connected).
set pins [list \
    xilinx.com:ip:zynq_ultra_ps_e {
        {maxihpm0_fpd_aclk saxihp0_fpd_aclk pl_ps_irq0} {pl_clk0 pl_resetn0} {M_AXI_HPM0_FPD S_AXI_HP0_FPD}
    } \
    xilinx.com:ip:proc_sys_reset {{slowest_sync_clk ext_reset_in} {peripheral_reset peripheral_aresetn} {}} \
    xilinx.com:ip:smartconnect {{aclk aresetn} {} {S00_AXI M00_AXI}} \
    bisort_engine_bd {{clk rst} {irq} {s_axil m_axi}} \
]
set cells {}
set connected {}

proc tell {name value} {
    puts "$name\t$value"
}

proc check_options {command arguments} {
    set allowed [expr {[dict exists $::options $command] ? [dict get $::options $command] : {}}]
    foreach argument $arguments {
        if {[regexp {^-[a-z_]+$} $argument] && $argument ni $allowed} {
            error "$command: no option $argument; allowed: $allowed"
        }
    }
}

proc option {arguments name} {
    set at [lsearch -exact $arguments $name]
    if {$at < 0} { error "option $name is missing" }
    return [lindex $arguments $at+1]
}

proc check_file {path} {
    if {![file isfile $path]} { error "there is no file $path" }
}

proc pins_of {cell place} {
    if {![dict exists $::cells $cell]} { error "there is no cell $cell; there are [dict keys $::cells]" }
    return [lindex [dict get $::pins [dict get $::cells $cell]] $place]
}

proc known_pin {path places} {
    lassign [split $path /] cell pin
    foreach place $places {
        if {$pin in [pins_of $cell $place]} { return $path }
    }
    error "cell $cell has no pin $pin"
}

foreach plain {
    update_compile_order apply_bd_automation save_bd_design assign_bd_address make_wrapper report_utilization
    report_timing_summary
} {
    proc $plain {args} "check_options $plain \$args"
}
foreach {handle value} {
    current_project project current_fileset sources_1 get_runs impl_1 get_timing_paths path get_files millrace.bd
} {
    proc $handle {args} "check_options $handle \$args\nreturn $value"
}

proc create_project {args} {
    check_options create_project $args
    tell part [option $args -part]
}

proc create_bd_design {name} {
    tell design $name
}

proc add_files {args} {
    check_options add_files $args
    foreach path [lindex $args end] { check_file $path }
}

proc create_bd_cell {args} {
    check_options create_bd_cell $args
    set kind [option $args [expr {[option $args -type] eq "ip" ? "-vlnv" : "-reference"}]]
    if {![dict exists $::pins $kind]} { error "there is no IP $kind" }
    dict set ::cells [lindex $args end] $kind
}

proc get_bd_cells {name} {
    pins_of $name 0
    return $name
}
proc get_bd_pins {path} { known_pin $path {0 1} }
proc get_bd_intf_pins {path} { known_pin $path {2} }

proc get_bd_addr_segs {path} {
    if {![regexp {^([^/]+)/Data/SEG_(.+)_reg0$} $path -> master slave]} { error "no address segment $path" }
    get_bd_cells $master
    get_bd_cells $slave
    return $path
}

proc set_property {args} {
    check_options set_property $args
    if {[lindex $args 0] eq "-dict"} {
        set values [lindex $args 1]
    } else {
        set values [lrange $args 0 1]
    }
    dict for {name value} $values {
        if {[lindex $args end] eq "bisort_engine_0" && [string range $name 7 end] ni $::ports} {
            error "bisort_engine_bd has no parameter $name; it has $::ports"
        }
        tell $name $value
    }
}

proc connect_bd_net {from to} {
    known_pin $from {1}
    known_pin $to {0}
    if {$to in $::connected} { error "$to is driven twice" }
    lappend ::connected $to
}

proc connect_bd_intf_net {from to} {
    foreach path [list $from $to] {
        if {$path in $::connected} { error "$path is connected twice" }
        lappend ::connected $path
    }
}

proc validate_bd_design {} {
    dict for {cell kind} $::cells {
        foreach pin [concat [pins_of $cell 0] [pins_of $cell 2]] {
            if {"$cell/$pin" ni $::connected} { error "$cell/$pin is not connected" }
        }
    }
}

# Creates the files of a run, so that the script finds them.
proc launch_runs {run args} {
    check_options launch_runs $args
    set project [file join $::out project]
    foreach path [list millrace.runs/impl_1/millrace_wrapper.bit \
        millrace.gen/sources_1/bd/millrace/hw_handoff/millrace.hwh] {
        file mkdir [file dirname [file join $project $path]]
        close [open [file join $project $path] w]
    }
}
proc wait_on_run {run} {}
proc open_run {run} {}

proc get_property {name object} {
    switch $name {
        PROGRESS { return 100% }
        SLACK { return 0.1 }
        default { error "property $name is not known" }
    }
}

proc unknown {command args} {
    error "no such command: $command"
}

set argv [list $out $hash]
set text [read [open $script]]
if {![info complete $text]} { error "$script ends in the middle of a command" }
source $script
