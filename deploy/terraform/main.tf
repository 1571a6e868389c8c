# The server side of a pair in a VPC: one instance with an address and a store volume that outlive it.

data "aws_subnet" "this" {
  id = var.subnet_id
}

data "aws_region" "current" {}

data "aws_partition" "current" {}

data "aws_ami" "debian" {
  count       = var.ami_id == null ? 1 : 0
  most_recent = true
  # Debian's own account.
  owners = ["136693071363"]

  filter {
    name   = "name"
    values = ["debian-12-amd64-*"]
  }

  filter {
    name   = "virtualization-type"
    values = ["hvm"]
  }
}

locals {
  ami_id = var.ami_id == null ? data.aws_ami.debian[0].id : var.ami_id
  tags   = merge(var.tags, { Name = var.name })
  arn    = "arn:${data.aws_partition.current.partition}"

  configuration = join("\n", compact([
    var.extra_configuration,
    var.client_addresses ? "[intercept]\nsource = ${jsonencode(var.client_cidrs)}" : "",
  ]))

  # With the clients' own addresses, what the file servers answer has to come back through the proxy.
  returns = var.client_addresses ? {
    for pair in setproduct(var.file_server_route_table_ids, var.client_cidrs) : "${pair[0]} ${pair[1]}" => pair
  } : {}
}

# What may reach the proxy, and what it may reach.

resource "aws_security_group" "this" {
  name        = var.name
  description = "Isthmus server-side proxy"
  vpc_id      = data.aws_subnet.this.vpc_id
  tags        = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "peers" {
  for_each          = toset(var.peer_cidrs)
  security_group_id = aws_security_group.this.id
  description       = "Branches and laptops"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = 7810
  to_port           = 7810
}

resource "aws_vpc_security_group_egress_rule" "file_servers" {
  for_each          = toset(var.file_server_cidrs)
  security_group_id = aws_security_group.this.id
  description       = "SMB"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = 445
  to_port           = 445
}

resource "aws_vpc_security_group_egress_rule" "domain_controllers" {
  for_each          = toset(var.domain_controller_cidrs)
  security_group_id = aws_security_group.this.id
  description       = "Replication of key material: the RPC ports are chosen by the domain controllers"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = 0
  to_port           = 65535
}

resource "aws_vpc_security_group_egress_rule" "https" {
  security_group_id = aws_security_group.this.id
  description       = "Secrets, the package, Debian's updates, metrics"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_vpc_security_group_egress_rule" "http" {
  security_group_id = aws_security_group.this.id
  description       = "Debian's updates, which are signed"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 80
  to_port           = 80
}

# What the instance itself may do: read its secret and its package, and say how it is.

resource "aws_iam_role" "this" {
  name = var.name
  tags = local.tags

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.amazonaws.com" }
    }]
  })
}

resource "aws_iam_role_policy" "this" {
  name = var.name
  role = aws_iam_role.this.id

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat([
      {
        Effect   = "Allow"
        Action   = "secretsmanager:GetSecretValue"
        Resource = var.secret_arn
      },
      {
        Effect   = "Allow"
        Action   = "s3:GetObject"
        Resource = "${local.arn}:s3:::${var.package_bucket}/${var.package_key}"
      },
      {
        Effect    = "Allow"
        Action    = "cloudwatch:PutMetricData"
        Resource  = "*"
        Condition = { StringEquals = { "cloudwatch:namespace" = "Isthmus" } }
      },
      ], var.kms_key_arn == null ? [] : [{
        Effect   = "Allow"
        Action   = "kms:Decrypt"
        Resource = var.kms_key_arn
    }])
  })
}

resource "aws_iam_instance_profile" "this" {
  name = var.name
  role = aws_iam_role.this.name
  tags = local.tags
}

# The address and the store stay when the instance is replaced.

resource "aws_network_interface" "this" {
  subnet_id         = var.subnet_id
  private_ips       = var.private_ip == null ? null : [var.private_ip]
  security_groups   = [aws_security_group.this.id]
  source_dest_check = !var.client_addresses
  tags              = local.tags
}

resource "aws_route" "clients" {
  for_each               = local.returns
  route_table_id         = each.value[0]
  destination_cidr_block = each.value[1]
  network_interface_id   = aws_network_interface.this.id
}

resource "aws_ebs_volume" "store" {
  availability_zone = data.aws_subnet.this.availability_zone
  size              = var.store_gib
  type              = "gp3"
  encrypted         = true
  kms_key_id        = var.kms_key_arn
  tags              = local.tags
}

resource "aws_volume_attachment" "store" {
  device_name = "/dev/sdf"
  volume_id   = aws_ebs_volume.store.id
  instance_id = aws_instance.this.id
}

resource "aws_instance" "this" {
  ami                         = local.ami_id
  instance_type               = var.instance_type
  iam_instance_profile        = aws_iam_instance_profile.this.name
  user_data_replace_on_change = true
  tags                        = local.tags

  user_data = templatefile("${path.module}/cloud-init.yaml.tftpl", {
    region         = data.aws_region.current.name
    name           = var.name
    secret_arn     = var.secret_arn
    package_bucket = var.package_bucket
    package_key    = var.package_key
    package_sha256 = var.package_sha256
    file_servers   = jsonencode(var.file_servers)
    store_gib      = floor(var.store_gib * 9 / 10)
    # Indented as the file's content is, line by line.
    extra_configuration = indent(6, local.configuration)
    # As the kernel's device links name it.
    volume_serial = replace(aws_ebs_volume.store.id, "-", "")
  })

  network_interface {
    device_index         = 0
    network_interface_id = aws_network_interface.this.id
  }

  root_block_device {
    volume_type = "gp3"
    volume_size = 10
    encrypted   = true
  }

  # The proxy may hold key material: nothing but this machine's own root reads its credentials.
  metadata_options {
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  lifecycle {
    # A newer image of Debian is no reason to replace it.
    ignore_changes = [ami]

    precondition {
      condition     = !var.client_addresses || (length(var.client_cidrs) > 0 && length(var.file_server_route_table_ids) > 0)
      error_message = "client_addresses needs client_cidrs and file_server_route_table_ids."
    }
  }
}

# Health: of the hardware, which AWS moves the instance off, and of the proxy.

resource "aws_cloudwatch_metric_alarm" "recover" {
  alarm_name          = "${var.name} hardware"
  alarm_description   = "The instance's host has failed: it is started on another."
  namespace           = "AWS/EC2"
  metric_name         = "StatusCheckFailed_System"
  dimensions          = { InstanceId = aws_instance.this.id }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 2
  threshold           = 1
  comparison_operator = "GreaterThanOrEqualToThreshold"
  alarm_actions       = concat(["${local.arn}:automate:${data.aws_region.current.name}:ec2:recover"], var.alarm_topic_arns)
  tags                = local.tags
}

resource "aws_cloudwatch_metric_alarm" "ready" {
  alarm_name          = "${var.name} ready"
  alarm_description   = "The proxy is not ready, or has not said for five minutes that it is. Branches work over the bare WAN meanwhile."
  namespace           = "Isthmus"
  metric_name         = "Ready"
  dimensions          = { Proxy = var.name }
  statistic           = "Minimum"
  period              = 60
  evaluation_periods  = 5
  threshold           = 1
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "breaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
  tags                = local.tags
}
