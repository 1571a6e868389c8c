variable "name" {
  description = "Name of the instance and of everything that belongs to it."
  type        = string
  default     = "isthmus-server"
}

variable "subnet_id" {
  description = "Subnet of the instance: in the file server's VPC, best in its availability zone."
  type        = string
}

variable "private_ip" {
  description = "Address of the instance. It stays when the instance is replaced, and belongs into peer.address of the branches or into DNS. Null: one of the subnet's."
  type        = string
  default     = null
}

variable "instance_type" {
  description = "docs/sizing.md tells how much a branch takes. The programs are built for one architecture: that of the package."
  type        = string
  default     = "c7i.large"
}

variable "ami_id" {
  description = "Debian 12 image. Null: the newest of Debian's own for amd64."
  type        = string
  default     = null
}

variable "peer_cidrs" {
  description = "Networks that branches and laptops come from, as the instance sees them."
  type        = list(string)

  validation {
    condition     = length(var.peer_cidrs) > 0
    error_message = "Name at least one network: nobody can reach the proxy otherwise."
  }
}

variable "file_servers" {
  description = "File servers that the proxy may connect to: names as branches ask for them, addresses or networks."
  type        = list(string)

  validation {
    condition     = length(var.file_servers) > 0
    error_message = "Name at least one file server: the proxy connects to nothing else."
  }
}

variable "file_server_cidrs" {
  description = "Networks of the file servers, for the security group."
  type        = list(string)
}

variable "domain_controller_cidrs" {
  description = "Networks of the domain controllers, if keys are replicated from them (docs/fsx.md)."
  type        = list(string)
  default     = []
}

variable "secret_arn" {
  description = "Secret of AWS Secrets Manager with certificates and key material; README.md in this folder says how it looks."
  type        = string
}

variable "extra_configuration" {
  description = "Further sections of the proxy's configuration, as TOML: [keys] and [[keys.release]] above all. Files from the secret are in /etc/isthmus/server."
  type        = string
  default     = ""
}

variable "kms_key_arn" {
  description = "Customer-managed key of the secret and of the store volume. Null: AWS's own keys."
  type        = string
  default     = null
}

variable "package_bucket" {
  description = "S3 bucket with the Debian package."
  type        = string
}

variable "package_key" {
  description = "Name of the package in the bucket, such as isthmus-server_0.1.0_amd64.deb."
  type        = string
}

variable "package_sha256" {
  description = "SHA-256 of the package in hexadecimal; a package with another is not installed."
  type        = string

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.package_sha256))
    error_message = "Expected 64 hexadecimal digits, as sha256sum prints them."
  }
}

variable "store_gib" {
  description = "Size of the store's volume in GiB. The store itself takes nine tenths of it at most."
  type        = number
  default     = 100

  validation {
    condition     = var.store_gib >= 10
    error_message = "At least 10 GiB."
  }
}

variable "client_addresses" {
  description = "Whether the file servers see the clients' own addresses instead of the proxy's. Sets the source/destination check of the instance off, routes the clients' networks to it, and lets the proxy use their addresses."
  type        = bool
  default     = false
}

variable "client_cidrs" {
  description = "Networks of the clients behind the branches; only with client_addresses."
  type        = list(string)
  default     = []
}

variable "file_server_route_table_ids" {
  description = "Route tables of the file servers' subnets; only with client_addresses."
  type        = list(string)
  default     = []
}

variable "alarm_topic_arns" {
  description = "SNS topics that are told when the instance or the proxy is not well."
  type        = list(string)
  default     = []
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
  default     = {}
}
