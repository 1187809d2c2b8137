# Machines of the image for Nomad's QEMU driver: docs/engines.md. Their number is `count`.
job "berth" {
  type = "service"

  group "machine" {
    count = 2

    network {
      port "agent" {}
    }

    task "machine" {
      driver = "qemu"

      config {
        image_path      = "/var/lib/berth-vm/berth.qcow2"
        drive_interface = "virtio"
        accelerator     = "kvm"
        port_map        = [{ agent = 10001 }]

        # -snapshot discards what the machine writes. Files with settings are no arguments, which all users can read.
        args = [
          "-snapshot", "-no-reboot", "-smp", "2", "-device", "virtio-rng-pci",
          "-smbios", "type=11,path=secrets/control_url",
          "-smbios", "type=11,path=secrets/join_token",
          "-smbios", "type=11,path=secrets/advertise",
        ]
      }

      template {
        destination = "secrets/control_url"
        change_mode = "noop"
        data        = "io.systemd.credential:berth.control_url=https://control.example"
      }

      template {
        destination = "secrets/join_token"
        perms       = "0600"
        # A changed token is for machines that are started later.
        change_mode = "noop"
        data        = "io.systemd.credential:berth.join_token={{ with nomadVar \"nomad/jobs/berth\" }}{{ .join_token }}{{ end }}"
      }

      template {
        destination = "secrets/advertise"
        change_mode = "noop"
        data        = "io.systemd.credential:berth.advertise={{ env \"NOMAD_IP_agent\" }}:{{ env \"NOMAD_HOST_PORT_agent\" }}"
      }

      resources {
        cpu    = 2000
        memory = 2048
      }
    }
  }
}
